"""State-action value networks: an ensemble of M independent critics over [critic_obs, action].

With K > 1 atoms a critic is categorical (C51): its outputs are the logits of a distribution over
K returns. With K = 1 it is the plain scalar value. Legend: B rows, C critic observation width,
A action width, K atoms, M critics.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unilab_core.nets.mlp import build_mlp


class CriticEnsemble(nn.Module):
    """[B, C], [B, A] -> [M, B, K], in float32 also under autocast."""

    def __init__(
        self,
        critic_obs_width: int,
        action_width: int,
        hidden_dims: Sequence[int],
        *,
        num_critics: int = 2,
        num_atoms: int = 1,
        activation: str = "silu",
        layer_norm: bool = True,
        zero_head: bool = True,
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(
            build_mlp(
                critic_obs_width + action_width,
                hidden_dims,
                num_atoms,
                activation=activation,
                layer_norm=layer_norm,
                zero_head=zero_head,
            )
            for _ in range(num_critics)
        )

    def forward(self, critic_obs: Tensor, action: Tensor) -> Tensor:
        """Logits (K > 1) or values (K = 1) of every critic."""
        rows = torch.cat((critic_obs, action), dim=-1)
        return torch.stack([member(rows) for member in self.members]).float()
