"""Rewards divided by the running standard deviation of the discounted return.

    G_t = gamma G_{t-1} + r_t            per environment, G = 0 after an episode's end
    r'  = clip(r / sqrt(var(G) + 1e-8), -limit, limit)

The mean is not subtracted: that would change which policy is best. Rows must arrive in the order in
which they were collected. Legend: T steps, E environments.
"""

import torch
from torch import Tensor, nn

VARIANCE_FLOOR = 1e-8


class RewardScaler(nn.Module):
    """Running statistics of G over all environments, part of the checkpoint."""

    running_return: Tensor
    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, num_envs: int, *, gamma: float, limit: float) -> None:
        super().__init__()
        self._gamma = gamma
        self._limit = limit
        self.register_buffer("running_return", torch.zeros(num_envs))
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("var", torch.ones((), dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def scale(self, reward: Tensor, done: Tensor) -> Tensor:
        """Fold reward[E] and done[E] (1.0 at an episode's end); return the scaled reward[E]."""
        self.running_return.mul_(self._gamma).add_(reward)
        self._merge(self.running_return.double())
        scaled = reward / (self.var + VARIANCE_FLOOR).sqrt().float()
        self.running_return.mul_(1.0 - done)
        return scaled.clamp(-self._limit, self._limit)

    def scale_rollout(self, reward: Tensor, done: Tensor) -> Tensor:
        """The same for reward[T, E] and done[T, E], step after step."""
        rows = [self.scale(reward[t], done[t]) for t in range(reward.shape[0])]
        return torch.stack(rows)

    def _merge(self, rows: Tensor) -> None:
        """Parallel variance of Chan et al."""
        batch_var, batch_mean = torch.var_mean(rows, correction=0)
        weight = rows.numel() / (self.count + rows.numel())
        delta = batch_mean - self.mean
        self.var.copy_(
            self.var * (1 - weight) + batch_var * weight + delta.square() * weight * (1 - weight)
        )
        self.mean.add_(delta * weight)
        self.count.add_(rows.numel())
