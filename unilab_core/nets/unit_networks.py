"""FlashSAC's actor and critics on the layers of `unit_norm`.

    u = mean(s) + std(s) * eps,   a = tanh(u) * scale + bias
    log std = -10 + 6 (1 + tanh(raw))
    log pi(s, a) = sum_A [ log N(u; mean, std) - log(1 - tanh(u)^2) ]

The log-probability is that of tanh(u): the target entropy is meant for actions in [-1, 1], whatever
the units of the environment.

Legend: B rows, O observation width, C critic observation width, A action width, K atoms,
M critics, H width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unilab_core.nets.actor_spec import PlainSpec, check_bounds
from unilab_core.nets.squashed_gaussian import squashed_log_prob
from unilab_core.nets.unit_norm import UnitLinear, UnitTrunk

LOG_STD_MIN, LOG_STD_MAX = -10.0, 2.0


@dataclass(kw_only=True, slots=True, frozen=True)
class UnitActorSpec(PlainSpec):
    """Everything needed to rebuild the actor around stored weights."""

    obs_width: int
    """O."""
    hidden_dim: int
    """H."""
    num_blocks: int
    """Residual blocks."""
    expansion: int
    """Inner width of a block over H."""
    action_low: tuple[float, ...]
    """Lower action bounds, one per column."""
    action_high: tuple[float, ...]
    """Upper action bounds."""

    def __post_init__(self) -> None:
        check_bounds(self.action_low, self.action_high)

    @property
    def action_width(self) -> int:
        """A."""
        return len(self.action_low)


class UnitActor(nn.Module):
    """obs[B, O] -> distribution over actions[B, A]."""

    scale: Tensor
    bias: Tensor

    def __init__(self, spec: UnitActorSpec) -> None:
        super().__init__()
        self.spec = spec
        self.trunk = UnitTrunk(
            1, spec.obs_width, spec.hidden_dim, num_blocks=spec.num_blocks, expansion=spec.expansion
        )
        self.head = UnitLinear(1, spec.hidden_dim, 2 * spec.action_width)
        self.head_bias = nn.Parameter(torch.zeros(1, 2 * spec.action_width, 1))
        low, high = torch.tensor(spec.action_low), torch.tensor(spec.action_high)
        self.register_buffer("scale", (high - low) / 2)
        self.register_buffer("bias", (high + low) / 2)

    def forward(
        self, obs: Tensor, *, batch_stats: bool = False, keep: slice = slice(None)
    ) -> tuple[Tensor, Tensor]:
        """Mean and log std before squashing, each [B, A], in float32 also under autocast.

        Args:
            obs: [B, O].
            batch_stats: see `unit_norm`.
            keep: rows that are wanted; all of them make the statistics.
        """
        features = self.trunk(obs, batch_stats=batch_stats, keep=keep)
        columns = (self.head(features).float() + self.head_bias).squeeze(0)
        mean, raw = columns.t().chunk(2, dim=-1)
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (1.0 + torch.tanh(raw))
        return mean, log_std

    def act(self, obs: Tensor) -> Tensor:
        """Most likely action of each row (the evaluation policy)."""
        return self.squash(self(obs)[0])

    def sample(
        self,
        obs: Tensor,
        generator: torch.Generator | None = None,
        *,
        batch_stats: bool = False,
        keep: slice = slice(None),
    ) -> tuple[Tensor, Tensor]:
        """Reparametrised action[B, A] and the log-probability[B] of its unscaled form."""
        mean, log_std = self(obs, batch_stats=batch_stats, keep=keep)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        pre_tanh = mean + log_std.exp() * noise
        log_prob = squashed_log_prob(noise, log_std, pre_tanh, torch.ones_like(self.scale))
        return self.squash(pre_tanh), log_prob

    def explore(self, obs: Tensor, noise: Tensor) -> Tensor:
        """Actions[B, A] with a given eps[B, A]."""
        mean, log_std = self(obs)
        return self.squash(mean + log_std.exp() * noise)

    def squash(self, pre_tanh: Tensor) -> Tensor:
        """Tanh into the bounds of the action space."""
        return torch.tanh(pre_tanh) * self.scale + self.bias


class UnitCritics(nn.Module):
    """[B, C], [B, A] -> logits[M, B, K], in float32 also under autocast."""

    def __init__(
        self,
        critic_obs_width: int,
        action_width: int,
        hidden_dim: int,
        *,
        num_atoms: int,
        num_blocks: int,
        expansion: int,
        num_critics: int = 2,
    ) -> None:
        super().__init__()
        self.trunk = UnitTrunk(
            num_critics,
            critic_obs_width + action_width,
            hidden_dim,
            num_blocks=num_blocks,
            expansion=expansion,
        )
        self.head = UnitLinear(num_critics, hidden_dim, num_atoms)
        self.head_bias = nn.Parameter(torch.zeros(num_critics, num_atoms, 1))

    def forward(
        self,
        critic_obs: Tensor,
        action: Tensor,
        *,
        batch_stats: bool,
        keep: slice = slice(None),
    ) -> Tensor:
        """Logits of every critic; the arguments are those of `UnitActor.forward`."""
        rows = torch.cat((critic_obs, action), dim=-1)
        features = self.trunk(rows, batch_stats=batch_stats, keep=keep)
        return (self.head(features).float() + self.head_bias).transpose(1, 2)
