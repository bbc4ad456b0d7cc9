"""Target networks that follow the online ones: target <- target + tau (online - target)."""

import torch
from torch import nn


@torch.no_grad()
def polyak_update(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Move every parameter of `target` the fraction `tau` of the way to `online`."""
    for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
        slow.lerp_(fast, tau)
