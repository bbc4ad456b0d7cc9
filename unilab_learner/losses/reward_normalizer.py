"""FlashSAC's reward scale: spread and reach of the discounted return.

    G_t   = gamma (1 - done_{t-1}) G_{t-1} + r_t                    per environment
    scale = max( sqrt(var(G) + 1e-8), max|G| / G_max )
    r'    = r / scale

The figures are updated when rows are collected and applied when they are sampled, so that old rows
are judged by the newest scale. Ticks must arrive in the order in which they were collected.

Legend: E environments.
"""

import torch
from torch import Tensor, nn

VARIANCE_FLOOR = 1e-8


class RewardNormalizer(nn.Module):
    """Running statistics of G over all environments, part of the checkpoint."""

    mean: Tensor
    var: Tensor
    count: Tensor
    largest: Tensor
    _returns: Tensor

    def __init__(self, num_envs: int, *, gamma: float, g_max: float) -> None:
        super().__init__()
        self._gamma = gamma
        self._g_max = g_max
        # float64, so that long runs do not drift.
        for name in ("mean", "var", "count", "largest"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))
        # Not in the checkpoint: a resumed run begins new episodes.
        self.register_buffer("_returns", torch.zeros(num_envs), persistent=False)

    @torch.no_grad()
    def observe(self, reward: Tensor, done: Tensor) -> None:
        """Fold in one tick: reward[E], and done[E], 1.0 where an episode ended with it."""
        self._returns.mul_(self._gamma).add_(reward)
        self._merge(self._returns.double())
        self._returns.mul_(1.0 - done)

    @property
    def scale(self) -> Tensor:
        """[] what rewards are divided by; 1 before the first tick."""
        spread = torch.maximum((self.var + VARIANCE_FLOOR).sqrt(), self.largest / self._g_max)
        return torch.where(self.count > 0, spread, torch.ones_like(spread)).float()

    def _merge(self, rows: Tensor) -> None:
        """Parallel variance of Chan et al., and the largest magnitude."""
        batch_var, batch_mean = torch.var_mean(rows, correction=0)
        self.count.add_(rows.numel())
        weight = rows.numel() / self.count
        delta = batch_mean - self.mean
        self.var.copy_(
            self.var * (1 - weight) + batch_var * weight + delta.square() * weight * (1 - weight)
        )
        self.mean.add_(delta * weight)
        self.largest.copy_(torch.maximum(self.largest, rows.abs().max()))
