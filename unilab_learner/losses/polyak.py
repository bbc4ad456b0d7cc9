"""Target networks that follow the online ones: target <- target + tau (online - target)."""

import torch
from torch import Tensor


@torch.no_grad()
def polyak_update(target: Tensor, online: Tensor, tau: float) -> None:
    """Move `target` the fraction `tau` of the way to `online`, both [P] (all parameters flat)."""
    target.lerp_(online, tau)
