"""Tanh-squashed Gaussian actor of SAC, with actions scaled into the bounds of the action space.

    u = mean(s) + std(s) * eps,   a = tanh(u) * scale + bias
    log pi(a|s) = sum_A [ log N(u; mean, std) - log(1 - tanh(u)^2) - log(scale) ]

Legend: B rows, O observation width, A action width.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from unilab_core.nets.actor_spec import PlainSpec, check_bounds
from unilab_core.nets.mlp import build_mlp

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
LOG_2 = math.log(2.0)


@dataclass(kw_only=True, slots=True, frozen=True)
class ActorSpec(PlainSpec):
    """Everything needed to rebuild the actor around stored weights."""

    obs_width: int
    """O."""
    hidden_dims: tuple[int, ...]
    """Widths of the hidden layers."""
    activation: str
    """One of `mlp.ACTIVATIONS`."""
    layer_norm: bool
    """LayerNorm before each activation."""
    log_std_min: float
    """Lower end of the smooth map of log std."""
    log_std_max: float
    """Upper end; a zero-initialised head starts in the middle."""
    mean_limit: float
    """|mean| before tanh is clamped to this: beyond it tanh is flat and gradients vanish."""
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


class SquashedGaussianActor(nn.Module):
    """obs[B, O] -> distribution over actions[B, A]."""

    scale: Tensor
    bias: Tensor

    def __init__(self, spec: ActorSpec) -> None:
        super().__init__()
        self.spec = spec
        self.net = build_mlp(
            spec.obs_width,
            spec.hidden_dims,
            2 * spec.action_width,
            activation=spec.activation,
            layer_norm=spec.layer_norm,
            zero_head=True,
        )
        low, high = torch.tensor(spec.action_low), torch.tensor(spec.action_high)
        self.register_buffer("scale", (high - low) / 2)
        self.register_buffer("bias", (high + low) / 2)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log std before squashing, each [B, A], in float32 also under autocast."""
        mean, raw = self.net(obs).float().chunk(2, dim=-1)
        low, high = self.spec.log_std_min, self.spec.log_std_max
        log_std = low + 0.5 * (high - low) * (1 + torch.tanh(raw))
        return mean.clamp(-self.spec.mean_limit, self.spec.mean_limit), log_std

    def act(self, obs: Tensor) -> Tensor:
        """Most likely action of each row (the evaluation policy)."""
        mean, _ = self(obs)
        return torch.tanh(mean) * self.scale + self.bias

    def sample(
        self, obs: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Reparametrised action[B, A] and its log-probability[B]."""
        mean, log_std = self(obs)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        pre_tanh = mean + log_std.exp() * noise
        action = torch.tanh(pre_tanh) * self.scale + self.bias
        return action, squashed_log_prob(noise, log_std, pre_tanh, self.scale)


def squashed_log_prob(noise: Tensor, log_std: Tensor, pre_tanh: Tensor, scale: Tensor) -> Tensor:
    """Log-density of a = tanh(u) * scale + bias, all inputs [B, A] except scale[A] -> [B].

    log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)): exact also where tanh saturates.
    """
    gaussian = -0.5 * noise.square() - log_std - LOG_SQRT_2PI
    squash = 2.0 * (LOG_2 - pre_tanh - functional.softplus(-2.0 * pre_tanh))
    return (gaussian - squash - scale.log()).sum(dim=-1)
