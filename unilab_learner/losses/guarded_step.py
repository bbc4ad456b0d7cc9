"""An optimiser step that never lets a non-finite number into the weights, and never waits for one.

The fused Adam of torch skips its whole step, moments and step counters included, when the tensor
`found_inf` is 1. The decision is made where the tensors live: the host reads the count of skipped
steps once per iteration.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def guarded_step(
    optimizer: torch.optim.Optimizer,
    params: Sequence[Tensor],
    loss: Tensor,
    *,
    max_grad_norm: float,
    all_mean: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Differentiate `loss` by `params` alone, and step unless anything is non-finite.

    Only the named parameters get gradients, so that the actor loss does not pay for the weight
    gradients of the critics it runs through.

    Args:
        optimizer: a fused Adam or AdamW over exactly `params`.
        params: the parameters to move.
        loss: a scalar.
        max_grad_norm: joint L2 limit; 0 leaves the gradients alone.
        all_mean: mean of a tensor over learner ranks, for their gradients.

    Returns:
        The gradient norm before clipping, and 1.0 if the step was skipped, else 0.0.
    """
    grads = torch.autograd.grad(loss, params)
    if all_mean is not None:
        grads = [all_mean(grad) for grad in grads]
    norm = torch.nn.utils.get_total_norm(grads)
    if max_grad_norm > 0.0:
        factor = (max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        grads = [grad * factor for grad in grads]
    skipped = 1.0 - (torch.isfinite(norm) & torch.isfinite(loss.detach())).float()
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad
    optimizer.grad_scale = None  # pyright: ignore[reportAttributeAccessIssue]
    optimizer.found_inf = skipped  # pyright: ignore[reportAttributeAccessIssue]
    optimizer.step()
    for param in params:
        param.grad = None
    return norm, skipped
