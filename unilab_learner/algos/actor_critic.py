"""What SAC and FlashSAC learn from and what their learning changes.

Legend: B batch rows, O observation, C critic observation, A action, K atoms, P parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from unilab_learner.losses.guarded_adam import GuardedAdam


@dataclass(kw_only=True, slots=True)
class ReplayBatch:
    """One minibatch of transitions, scaled as the algorithm wants them."""

    obs: Tensor
    """[B, O]"""
    critic_obs: Tensor
    """[B, C]"""
    action: Tensor
    """[B, A]"""
    reward: Tensor
    """[B] n-step discounted sum"""
    discount: Tensor
    """[B] factor of the bootstrap value, 0 where the episode terminated"""
    next_obs: Tensor
    """[B, O] the true next observation, also where the episode was cut by time"""
    next_critic_obs: Tensor
    """[B, C]"""


Actor = TypeVar("Actor", bound=nn.Module)
Critics = TypeVar("Critics", bound=nn.Module)


@dataclass(kw_only=True, slots=True)
class ActorCriticState(Generic[Actor, Critics]):
    """All that learning changes."""

    actor: Actor
    critics: Critics
    target_critics: Critics
    average_actor: Actor
    """Running mean of the actor's weights (`policy_ema`), for the exported policy"""
    average_vector: Tensor
    """[P] its parameters, flat"""
    log_alpha: Tensor
    """[] logarithm of the temperature"""
    target_vector: Tensor
    """[P] all parameters of the target critics"""
    actor_optimizer: GuardedAdam
    critic_optimizer: GuardedAdam
    alpha_optimizer: GuardedAdam
    support: Tensor
    """[K] atoms of the value distribution (one 0 when the critics are scalar)"""
    target_entropy: float
    skipped_steps: Tensor
    """[] optimiser steps refused so far because a loss or gradient was not finite"""
    generator: torch.Generator
    num_updates: int = 0
    actor_metrics: dict[str, Tensor]
    """Figures of the last actor update, repeated between actor updates."""

    def state_dict(self) -> dict[str, Any]:
        """Everything `load_state_dict` needs to continue bit for bit (tensors, plain values)."""
        return {
            **{name: part.state_dict() for name, part in self._parts().items()},
            "log_alpha": self.log_alpha.detach(),
            "generator": self.generator.get_state(),
            "num_updates": self.num_updates,
            "actor_metrics": dict(self.actor_metrics),
        }

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        for name, part in self._parts().items():
            part.load_state_dict(values[name])
        with torch.no_grad():
            self.log_alpha.copy_(values["log_alpha"])
        self.generator.set_state(values["generator"])
        self.num_updates = int(values["num_updates"])
        self.actor_metrics = dict(values["actor_metrics"])

    def _parts(self) -> dict[str, Any]:
        """What has a state dict of its own."""
        return {
            "actor": self.actor,
            "average_actor": self.average_actor,
            "critics": self.critics,
            "target_critics": self.target_critics,
            "actor_optimizer": self.actor_optimizer,
            "critic_optimizer": self.critic_optimizer,
            "alpha_optimizer": self.alpha_optimizer,
        }
