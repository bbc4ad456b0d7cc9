"""Running observation normaliser: x -> (x - mean) / (std + 1e-2).

Owned by the learner, which feeds it every vector tick that enters the replay; frozen copies travel
in `policy.pt`. The 1e-2 keeps a column that has hardly moved yet from being blown up. Legend:
B rows, O observation width.
"""

import torch
from torch import Tensor, nn

STD_FLOOR = 1e-2


class ObsNormalizer(nn.Module):
    """Mean and variance of all rows seen so far, kept in float64 so that long runs do not drift."""

    mean: Tensor
    var: Tensor
    count: Tensor
    _shift: Tensor
    _scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("var", torch.ones(width, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("_shift", torch.zeros(width), persistent=False)
        self.register_buffer("_scale", torch.ones(width), persistent=False)
        self.register_load_state_dict_post_hook(lambda module, _keys: module._refresh())

    @torch.no_grad()
    def update(self, rows: Tensor) -> None:
        """Merge the moments of rows[B, O] (parallel variance of Chan et al.)."""
        batch = rows.double()
        batch_var, batch_mean = torch.var_mean(batch, dim=0, correction=0)
        batch_count = float(rows.shape[0])
        total = self.count + batch_count
        delta = batch_mean - self.mean
        weight = batch_count / total
        self.var.copy_(
            self.var * (1 - weight) + batch_var * weight + delta.square() * weight * (1 - weight)
        )
        self.mean.add_(delta * weight)
        self.count.copy_(total)
        self._refresh()

    def forward(self, rows: Tensor) -> Tensor:
        """Normalise rows[..., O]."""
        return (rows - self._shift) * self._scale

    def factors(self) -> list[Tensor]:
        """What `forward` uses, shift[O] and scale[O]: all that an acting copy needs."""
        return [self._shift, self._scale]

    def _refresh(self) -> None:
        """Recompute the float32 factors that `forward` uses."""
        self._shift.copy_(self.mean)
        self._scale.copy_(1.0 / (self.var.sqrt() + STD_FLOOR))
