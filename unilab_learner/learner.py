"""What every algorithm's learner offers to the session, the loops and the saver."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from unilab_core.config.config import Config
from unilab_core.config.on_policy import AppoConfig, PpoConfig
from unilab_core.nets.normalizer import ObsNormalizer
from unilab_core.nets.policy_file import Actor


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
    from unilab_learner.sac_learner import SacLearner

    return SacLearner
