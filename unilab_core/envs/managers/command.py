"""CommandManager: goals and clocks by name, and when goals are drawn anew."""

from typing import Protocol

import numpy as np

from unilab_core.config.env import CommandTermConfig
from unilab_core.contracts import BoolArray, FloatArray, IdArray
from unilab_core.envs.managers.resolve import resolve_term
from unilab_core.envs.mdp import commands
from unilab_core.envs.mdp.commands import CommandTerm

_NEVER = np.iinfo(np.int64).max


class CommandManager(Protocol):
    """What the environment asks of its commands."""

    values: dict[str, FloatArray]
    terms: dict[str, CommandTerm]

    def advance(self) -> None:
        """One control step has passed; before rewards."""
        ...

    def resample(self, done: BoolArray) -> None:
        """Draw goals that are due, except where the episode ends; after rewards."""
        ...

    def reset(self, ids: IdArray) -> None:
        """These environments start an episode."""
        ...


class NullCommandManager:
    """For tasks without commands."""

    def __init__(self) -> None:
        self.values: dict[str, FloatArray] = {}
        self.terms: dict[str, CommandTerm] = {}

    def advance(self) -> None:
        """Nothing moves."""

    def resample(self, done: BoolArray) -> None:
        """Nothing to draw."""

    def reset(self, ids: IdArray) -> None:
        """Nothing to start."""


class TermCommandManager:
    """All command terms."""

    def __init__(
        self,
        configs: dict[str, CommandTermConfig],
        *,
        num_envs: int,
        step_dt_s: float,
        rng: np.random.Generator,
    ) -> None:
        self.terms: dict[str, CommandTerm] = {}
        self._schedules: dict[str, _Schedule] = {}
        for name, config in configs.items():
            path = f"env.commands.{name}"
            given = ("num_envs", "step_dt_s", "rng")
            term = resolve_term(commands, config.function, config.params, given, path)
            self.terms[name] = term(num_envs, step_dt_s, rng, **config.params)
            if config.resampling_s is not None:
                low, high = (round(seconds / step_dt_s) for seconds in config.resampling_s)
                self._schedules[name] = _Schedule(num_envs, max(1, low), max(1, high), rng)
        self.values = {name: term.value for name, term in self.terms.items()}

    def advance(self) -> None:
        """One control step has passed."""
        for term in self.terms.values():
            term.advance()

    def resample(self, done: BoolArray) -> None:
        """Draw goals that are due; an ending episode keeps its goal to the last observation."""
        for name, schedule in self._schedules.items():
            ids = schedule.due(done)
            if ids is not None:
                self.terms[name].resample(ids)

    def reset(self, ids: IdArray) -> None:
        """These environments start an episode."""
        for term in self.terms.values():
            term.reset(ids)
        for schedule in self._schedules.values():
            schedule.restart(ids)


class _Schedule:
    """Control steps at which each environment's goal is due, between low and high apart."""

    def __init__(self, num_envs: int, low: int, high: int, rng: np.random.Generator) -> None:
        self._low, self._high, self._rng = low, high, rng
        self._now = 0
        self._due_at = np.full(num_envs, _NEVER, np.int64)
        self._earliest = _NEVER  # a lower bound, so that most steps cost one comparison

    def due(self, done: BoolArray) -> IdArray | None:
        """Advance by a step; environments whose goal is due now, or None."""
        self._now += 1
        if self._now < self._earliest:
            return None
        ids = np.flatnonzero((self._due_at <= self._now) & ~done)
        self.restart(ids)
        self._earliest = int(self._due_at.min())
        return ids if len(ids) else None

    def restart(self, ids: IdArray) -> None:
        """Count from now for these environments."""
        wait = self._rng.integers(self._low, self._high, size=len(ids), endpoint=True)
        self._due_at[ids] = self._now + wait
        self._earliest = min(self._earliest, self._now + self._low)


def make_command_manager(
    configs: dict[str, CommandTermConfig],
    *,
    num_envs: int,
    step_dt_s: float,
    rng: np.random.Generator,
) -> CommandManager:
    """The manager of a task's commands."""
    if not configs:
        return NullCommandManager()
    return TermCommandManager(configs, num_envs=num_envs, step_dt_s=step_dt_s, rng=rng)
