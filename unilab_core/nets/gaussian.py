"""Gaussian policy of PPO and APPO: not squashed, standard deviation independent of the state.

    x = clip((obs - mean) / (std + 1e-2)),   a ~ N(mlp(x), diag(exp(log_std))^2)
    log pi(a|s) = - sum_A [ z^2 / 2 + log_std + log sqrt(2 pi) ],   z = (a - mean) / std

The observation normaliser is part of the policy: whoever has the weights has the matching
statistics. Learner (APPO), collector (APPO) and `policy.pt` (PPO, APPO) use this one class.

`pack_policy` flattens what acting needs into float32 for the policy snapshot, `unpack_policy` is
its inverse; both walk the same list, so equal specs mean equal layouts.

Legend: B rows, O observation width, A action width, P flat values.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from unilab_core.nets.actor_spec import PlainSpec
from unilab_core.nets.mlp import build_mlp
from unilab_core.nets.normalizer import ObsNormalizer

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
HIDDEN_GAIN = math.sqrt(2.0)


@dataclass(kw_only=True, slots=True, frozen=True)
class GaussianSpec(PlainSpec):
    """Everything needed to rebuild the policy around stored weights."""

    label: ClassVar[str] = "policy"

    obs_width: int
    """O."""
    action_width: int
    """A."""
    hidden_dims: tuple[int, ...]
    """Widths of the hidden layers."""
    activation: str
    """One of `mlp.ACTIVATIONS`."""
    obs_normalization: bool
    """Whether the policy carries a normaliser."""
    obs_clip: float
    """Normalised observations are clipped to this; 0 leaves them alone."""


class GaussianPolicy(nn.Module):
    """obs[B, O] -> mean[B, A] and std[A], in float32 also under autocast."""

    def __init__(self, spec: GaussianSpec, *, init_std: float = 1.0) -> None:
        super().__init__()
        self.spec = spec
        self.normalizer = ObsNormalizer(spec.obs_width) if spec.obs_normalization else None
        self.net = build_mlp(
            spec.obs_width,
            spec.hidden_dims,
            spec.action_width,
            activation=spec.activation,
            layer_norm=False,
            zero_head=False,
        )
        self.log_std = nn.Parameter(torch.full((spec.action_width,), math.log(init_std)))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean[..., A] and standard deviation[A] of raw observations[..., O]."""
        return self.of_scaled(self.scaled(obs))

    def scaled(self, obs: Tensor) -> Tensor:
        """Observations as the network sees them."""
        return scale_obs(obs, self.normalizer, self.spec.obs_clip)

    def of_scaled(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """`forward` of rows that `scaled` made: an update scales once, not once per epoch."""
        return self.net(rows).float(), self.log_std.exp()

    def act(self, obs: Tensor) -> Tensor:
        """Most likely action of each row (the evaluation policy)."""
        return self(obs)[0]


class ValueNet(nn.Module):
    """critic_obs[B, C] -> V[B], with its own normaliser, in float32 also under autocast."""

    def __init__(
        self,
        critic_obs_width: int,
        hidden_dims: tuple[int, ...],
        *,
        activation: str,
        obs_normalization: bool,
        obs_clip: float,
    ) -> None:
        super().__init__()
        self.obs_clip = obs_clip
        self.normalizer = ObsNormalizer(critic_obs_width) if obs_normalization else None
        self.net = build_mlp(
            critic_obs_width,
            hidden_dims,
            1,
            activation=activation,
            layer_norm=False,
            zero_head=False,
        )

    def forward(self, critic_obs: Tensor) -> Tensor:
        """Value of each row of raw critic observations[..., C] -> [...]."""
        return self.of_scaled(self.scaled(critic_obs))

    def scaled(self, critic_obs: Tensor) -> Tensor:
        """Observations as the network sees them."""
        return scale_obs(critic_obs, self.normalizer, self.obs_clip)

    def of_scaled(self, rows: Tensor) -> Tensor:
        """`forward` of rows that `scaled` made."""
        return self.net(rows).float().squeeze(-1)


def scale_obs(obs: Tensor, normalizer: ObsNormalizer | None, clip: float) -> Tensor:
    """Normalise and clip, each only where it is wanted."""
    if normalizer is not None:
        obs = normalizer(obs)
    return obs.clamp(-clip, clip) if clip > 0.0 else obs


def log_prob(actions: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Log-density of actions[..., A] under N(mean[..., A], std[A]) -> [...]."""
    z = (actions - mean) / std
    return -(0.5 * z.square()).sum(dim=-1) - (std.log() + LOG_SQRT_2PI).sum(dim=-1)


def entropy(std: Tensor) -> Tensor:
    """Entropy in nats of a Gaussian with std[A] -> []."""
    return (std.log() + LOG_SQRT_2PI + 0.5).sum()


def kl_divergence(mean_p: Tensor, std_p: Tensor, mean_q: Tensor, std_q: Tensor) -> Tensor:
    """KL(p || q) of diagonal Gaussians; means[..., A], standard deviations[A] -> [...].

    sum_A [ log(std_q / std_p) + (std_p^2 + (mean_p - mean_q)^2) / (2 std_q^2) - 1/2 ]
    """
    spread = (std_p.square() + (mean_p - mean_q).square()) / (2.0 * std_q.square())
    return (std_q.log() - std_p.log() + spread - 0.5).sum(dim=-1)


def orthogonal_init(net: nn.Sequential, head_gain: float) -> None:
    """Orthogonal weights, zero biases: gain sqrt(2) in hidden layers, `head_gain` in the last."""
    linears = [layer for layer in net if isinstance(layer, nn.Linear)]
    for layer in linears:
        nn.init.orthogonal_(layer.weight, head_gain if layer is linears[-1] else HIDDEN_GAIN)
        nn.init.zeros_(layer.bias)


@torch.no_grad()
def pack_policy(policy: GaussianPolicy, out: np.ndarray) -> None:
    """Flatten the policy into out[P] (float32)."""
    start = 0
    for tensor in _acting_tensors(policy):
        stop = start + tensor.numel()
        out[start:stop] = tensor.detach().reshape(-1).cpu().numpy()
        start = stop
    _check_width(start, out)


@torch.no_grad()
def unpack_policy(values: np.ndarray, policy: GaussianPolicy) -> None:
    """Load values[P] that `pack_policy` wrote into a policy of the same spec."""
    flat = torch.from_numpy(np.array(values, dtype=np.float32))
    start = 0
    for tensor in _acting_tensors(policy):
        stop = start + tensor.numel()
        tensor.copy_(flat[start:stop].view_as(tensor))
        start = stop
    _check_width(start, values)


def _acting_tensors(policy: GaussianPolicy) -> list[Tensor]:
    tensors: list[Tensor] = list(policy.parameters())
    if policy.normalizer is not None:
        tensors += policy.normalizer.factors()
    return tensors


def _check_width(width: int, values: np.ndarray) -> None:
    if values.shape != (width,):
        raise ValueError(f"flat policy: got {values.shape}, expected ({width},)")
