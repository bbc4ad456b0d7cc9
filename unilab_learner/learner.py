"""What every algorithm's learner offers to the session, the loops and the saver."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from unilab_core.config.algo import OffPolicyConfig
from unilab_core.config.config import Config
from unilab_core.config.flash_sac import FlashSacConfig
from unilab_core.config.on_policy import AppoConfig, PpoConfig
from unilab_core.nets.normalizer import ObsNormalizer
from unilab_core.nets.policy_file import Actor
from unilab_learner.replay.buffer import ReplayBuffer, StoredTick


class Learner(Protocol):
    """Networks, optimisers and whatever else learning changes, on one device."""

    device: torch.device

    @property
    def rows_per_batch(self) -> int:
        """Rows of one optimiser step."""
        ...

    def acting(self) -> tuple[Actor, ObsNormalizer | None]:
        """The parts of `policy.pt`; the normaliser is None where the actor has its own."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes what happens next."""
        ...

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        ...


Batch = TypeVar("Batch")


class OffPolicyLearner(Learner, Protocol[Batch]):
    """What the loop of SAC and FlashSAC needs besides."""

    cfg: OffPolicyConfig
    replay: ReplayBuffer

    @property
    def rows_per_iteration(self) -> int:
        """Replay rows that one call of `learn` trains on."""
        ...

    def act(self, obs: Tensor, ended: Tensor) -> Tensor:
        """Exploring actions[E, A] for obs[E, O]; ended[E] is nonzero where an episode ended."""
        ...

    def act_randomly(self, obs: Tensor, ended: Tensor) -> Tensor:
        """Actions of the warm-up."""
        ...

    def observe(self, tick: StoredTick) -> None:
        """Take note of one stored tick."""
        ...

    def gather(self) -> None:
        """Draw the rows of the next iteration."""
        ...

    def take(self) -> list[Batch]:
        """The gathered rows as batches."""
        ...

    def learn(self, batches: list[Batch]) -> tuple[dict[str, float], int]:
        """Run the updates; figures by canonical tag, refused optimiser steps so far."""
        ...


def learner_class(config: Config) -> Callable[..., Learner]:
    """Class of the configured algorithm's learner; imports that algorithm alone.

    rsl-rl-lib and tensordict take seconds to import, which only PPO should pay, and which it pays
    while the collector builds its environment.
    """
    if isinstance(config.algo, PpoConfig):
        if config.training.trace_enabled:
            from unilab_learner.ppo_timeline import TracedPpoLearner

            return TracedPpoLearner
        from unilab_learner.ppo_learner import PpoLearner

        return PpoLearner
    if isinstance(config.algo, AppoConfig):
        from unilab_learner.appo_learner import AppoLearner

        return AppoLearner
    if isinstance(config.algo, FlashSacConfig):
        from unilab_learner.flash_sac_learner import FlashSacLearner

        return FlashSacLearner
    from unilab_learner.sac_learner import SacLearner

    return SacLearner
