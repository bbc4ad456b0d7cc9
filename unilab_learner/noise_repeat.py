"""Exploration noise that is held for a while, so that a trial has consequences.

Each environment keeps its eps for k steps, P(k) proportional to k^-mu for k = 1 .. K, then draws
both anew; an episode's end draws at once. With mu = 2 and K = 16 most noise lives one step and some
of it a whole stride.

Legend: E environments, A action width.
"""

import torch
from torch import Tensor


def repeat_probabilities(mu: float, max_repeat: int) -> Tensor:
    """P(k) for k = 1 .. max_repeat, float64 [K]."""
    weights = torch.arange(1, max_repeat + 1, dtype=torch.float64).pow(-mu)
    return weights / weights.sum()


class NoiseRepeater:
    """Standard normal noise [E, A] of one vector of environments."""

    def __init__(
        self,
        num_envs: int,
        action_width: int,
        *,
        mu: float,
        max_repeat: int,
        device: torch.device,
    ) -> None:
        # Without the last edge, so that rounding cannot give a k beyond the largest.
        edges = repeat_probabilities(mu, max_repeat).cumsum(0)[:-1]
        self._edges = edges.float().to(device)
        self._noise = torch.zeros((num_envs, action_width), device=device)
        self._left = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def next(self, ended: Tensor, generator: torch.Generator) -> Tensor:
        """Noise of the next step, not to be kept.

        Args:
            ended: [E] nonzero where the last step ended an episode.
            generator: always gives the same amount of numbers, whatever has run out.
        """
        shape, device = self._noise.shape, self._noise.device
        fresh = torch.randn(shape, generator=generator, device=device)
        uniform = torch.rand(shape[0], generator=generator, device=device)
        renew = (self._left == 0) | (ended != 0)
        lengths = torch.bucketize(uniform, self._edges, right=True) + 1
        self._left.copy_(torch.where(renew, lengths, self._left) - 1)
        self._noise.copy_(torch.where(renew.unsqueeze(-1), fresh, self._noise))
        return self._noise
