"""Target networks that follow the online ones: target <- target + tau (online - target)."""

import torch
from torch import nn


@torch.no_grad()
def polyak_update(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Move every parameter of `target` the fraction `tau` of the way to `online`."""
    torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), tau)
