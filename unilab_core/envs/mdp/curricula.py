"""Curriculum terms: classes, since a curriculum is state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from unilab_core.config.errors import unknown_name
from unilab_core.contracts import FloatArray, IdArray
from unilab_core.envs.term_view import StepArray


@dataclass(kw_only=True, slots=True, frozen=True)
class CurriculumContext:
    """What a curriculum may read and change."""

    reward_names: tuple[str, ...]
    reward_weights: FloatArray  # one per term, live
    episode_steps: StepArray  # [E], live
    num_steps: Callable[[], int]
    """Control steps since the environment was built."""


class scale_penalties:  # noqa: N801 - terms are named as the configuration spells them
    """Weaken penalties at first and strengthen them as episodes grow longer.

    After each batch of ended episodes the running mean of their length decides: above `up_steps`
    the factor grows by `step`, below `down_steps` it shrinks, within [`low`, `high`].

    Args:
        context: reward weights and episode lengths.
        terms: rewards whose configured weight is multiplied by the factor.
        low: factor at the start.
        high: factor at the end.
        step: change per update.
        up_steps: mean length from which it grows.
        down_steps: mean length under which it shrinks.
    """

    def __init__(
        self,
        context: CurriculumContext,
        terms: list[str],
        low: float,
        high: float,
        step: float,
        up_steps: float,
        down_steps: float,
    ) -> None:
        for name in terms:
            if name not in context.reward_names:
                raise unknown_name("reward", name, context.reward_names)
        self._context = context
        self._columns = [context.reward_names.index(name) for name in terms]
        self._full = context.reward_weights[self._columns].copy()
        self._low, self._high, self._step = low, high, step
        self._up_steps, self._down_steps = up_steps, down_steps
        self._mean_steps = 0.0
        self.level = low
        self._apply()

    def update(self, ids: IdArray) -> float:
        """Account for ended episodes; returns the new factor."""
        share = min(1.0, 0.01 * len(ids))
        mean = float(self._context.episode_steps[ids].mean())
        self._mean_steps += share * (mean - self._mean_steps)
        if self._mean_steps > self._up_steps:
            self.level = min(self._high, self.level + self._step)
        elif self._mean_steps < self._down_steps:
            self.level = max(self._low, self.level - self._step)
        self._apply()
        return self.level

    def _apply(self) -> None:
        self._context.reward_weights[self._columns] = self._full * self.level


class raise_weights:  # noqa: N801 - terms are named as the configuration spells them
    """Give some rewards another weight from a moment on: first the gait, then what it is for.

    Args:
        context: reward weights and the step counter.
        after_steps: control steps from the start of the environment.
        weights: reward -> its weight from then on.
    """

    def __init__(
        self, context: CurriculumContext, after_steps: int, weights: Mapping[str, float]
    ) -> None:
        for name in weights:
            if name not in context.reward_names:
                raise unknown_name("reward", name, context.reward_names)
        self._context = context
        self._after_steps = after_steps
        self._raised = {context.reward_names.index(name): w for name, w in weights.items()}
        self.level = 0.0

    def update(self, ids: IdArray) -> float:
        """0 before the moment, 1 after it; looked at whenever an episode ends."""
        del ids
        if self.level == 0.0 and self._context.num_steps() >= self._after_steps:
            for column, weight in self._raised.items():
                self._context.reward_weights[column] = weight
            self.level = 1.0
        return self.level
