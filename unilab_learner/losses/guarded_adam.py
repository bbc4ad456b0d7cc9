"""Adam over a whole network as one vector, whose steps never let a non-finite number in.

The parameters become views of one flat tensor: a step, a gradient norm or a target move is
then one operation instead of one per layer, which is a tenth of the update on small batches.

torch's fused Adam skips its whole step, moments and step counter included, when the tensor
`found_inf` is 1. So the decision is made where the tensors live, and the host reads the number of
refused steps once per iteration.

Legend: P parameters of the network.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def flatten_parameters(params: Sequence[Tensor]) -> Tensor:
    """Move `params` into one new tensor [P] and make each of them a view of its part.

    Loading a state dict keeps the views, because it copies in place; moving the module to another
    device or copying it does not: flatten afterwards.
    """
    flat = torch.cat([param.detach().reshape(-1) for param in params])
    at = 0
    for param in params:
        param.data = flat[at : at + param.numel()].view_as(param)
        at += param.numel()
    return flat


class GuardedAdam:
    """AdamW for one loss and one set of parameters."""

    def __init__(
        self,
        params: Sequence[Tensor],
        *,
        lr: float | Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        self._params = list(params)
        self.flat = flatten_parameters(self._params)
        """[P] all parameters"""
        self._vector = nn.Parameter(self.flat)
        self._adam = torch.optim.AdamW(
            [self._vector], lr=lr, betas=betas, weight_decay=weight_decay, eps=eps, fused=True
        )

    def step(
        self,
        loss: Tensor,
        *,
        max_grad_norm: float = 0.0,
        all_mean: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Differentiate `loss` by these parameters alone, and step unless anything is non-finite.

        Nothing else gets a gradient, so that the actor loss does not pay for the weight gradients
        of the critics it runs through.

        Args:
            loss: a scalar.
            max_grad_norm: L2 limit of the gradient; 0 leaves it alone.
            all_mean: mean of a tensor over learner ranks, for the gradient.

        Returns:
            The gradient norm before clipping, and 1.0 if the step was refused, else 0.0.
        """
        grads = torch.autograd.grad(loss, self._params)
        grad = torch.cat([part.reshape(-1) for part in grads])
        if all_mean is not None:
            grad = all_mean(grad)
        norm = torch.linalg.vector_norm(grad)
        if max_grad_norm > 0.0:
            grad = grad * (max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        refused = 1.0 - torch.isfinite(norm + loss.detach()).float()
        self._vector.grad = grad
        self._adam.grad_scale = None  # pyright: ignore[reportAttributeAccessIssue]
        self._adam.found_inf = refused  # pyright: ignore[reportAttributeAccessIssue]
        self._adam.step()
        self._vector.grad = None
        return norm, refused

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Settings of the optimiser, for schedules."""
        return self._adam.param_groups

    def state_dict(self) -> dict[str, Any]:
        """Moments and step counter; the parameters belong to their module."""
        return self._adam.state_dict()

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._adam.load_state_dict(dict(values))
