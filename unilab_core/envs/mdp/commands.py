"""Command terms: goals that are drawn, and clocks that run.

Contract of a command term: `value` [E, w] is a fixed buffer; `advance` runs once per control step,
before rewards; `resample` gives rows a new draw.
"""

from typing import Protocol

import numpy as np

from unilab_core.contracts import FloatArray, IdArray
from unilab_core.envs.columns import column_block

Range = tuple[float, float]


class CommandTerm(Protocol):
    """One command of all environments."""

    value: FloatArray  # [E, w]

    def advance(self) -> None:
        """One control step has passed."""
        ...

    def reset(self, ids: IdArray) -> None:
        """These environments start an episode."""
        ...

    def resample(self, ids: IdArray) -> None:
        """Draw anew for these environments."""
        ...


class uniform_velocity:  # noqa: N801 - terms are named as the configuration spells them
    """Planar velocity (x, y in m/s) and yaw rate (rad/s) in the base frame, drawn uniformly.

    Args:
        num_envs: rows.
        step_dt_s: control period, unused.
        rng: source of the draws.
        lin_vel_x: [low, high].
        lin_vel_y: [low, high].
        ang_vel_yaw: [low, high].
        standing_fraction: share of draws that are zero in all three.
    """

    def __init__(
        self,
        num_envs: int,
        step_dt_s: float,
        rng: np.random.Generator,
        lin_vel_x: Range,
        lin_vel_y: Range,
        ang_vel_yaw: Range,
        standing_fraction: float = 0.0,
    ) -> None:
        ranges = np.array([lin_vel_x, lin_vel_y, ang_vel_yaw])
        self._low, self._span = ranges[:, 0], ranges[:, 1] - ranges[:, 0]
        self._standing_fraction = standing_fraction
        self._rng = rng
        self._block = column_block(3, num_envs)
        self._held = False
        self.value: FloatArray = self._block.T

    def advance(self) -> None:
        """A goal does not move by itself."""

    def reset(self, ids: IdArray) -> None:
        """A new episode has a new goal."""
        self.resample(ids)

    def resample(self, ids: IdArray) -> None:
        """Draw anew, unless the goals are held."""
        if self._held:
            return
        draw = self._rng.random((len(ids), 3)) * self._span + self._low
        if self._standing_fraction > 0.0:
            draw[self._rng.random(len(ids)) < self._standing_fraction] = 0.0
        self._block[:, ids] = draw.T

    def hold(self, values: FloatArray) -> None:
        """Fix the goals from now on: `values` is [E, 3]. For evaluation."""
        np.copyto(self.value, values, casting="same_kind")
        self._held = True


class gait_phase:  # noqa: N801 - terms are named as the configuration spells them
    """Phase in [0, 1) of each foot in a fixed gait; starts at the offsets with the episode.

    Args:
        num_envs: rows.
        step_dt_s: control period.
        rng: unused.
        frequency_hz: gait cycles per second.
        offsets: phase of each foot at the start.
    """

    def __init__(
        self,
        num_envs: int,
        step_dt_s: float,
        rng: np.random.Generator,
        frequency_hz: float,
        offsets: tuple[float, ...],
    ) -> None:
        # Counting steps in double precision: phases that are equal in exact arithmetic (whole
        # periods apart) stay equal after rounding, so that "phase < 0.6" never flickers.
        self._cycles_per_step = frequency_hz * step_dt_s
        self._start = np.array(offsets)[:, None] / self._cycles_per_step
        self._steps = np.tile(self._start, num_envs)  # a foot that is ahead started earlier
        self._cycles = np.zeros_like(self._steps)
        self._whole = np.zeros_like(self._steps)
        self._block = column_block(len(offsets), num_envs)
        self.value: FloatArray = self._block.T

    def advance(self) -> None:
        """Every clock moves on by one control step."""
        self._steps += 1.0
        np.multiply(self._steps, self._cycles_per_step, out=self._cycles)
        np.floor(self._cycles, out=self._whole)
        np.subtract(self._cycles, self._whole, out=self._block, casting="same_kind")

    def reset(self, ids: IdArray) -> None:
        """The clock starts with the episode."""
        self._steps[:, ids] = self._start
        cycles = self._start * self._cycles_per_step
        self._block[:, ids] = cycles - np.floor(cycles)

    def resample(self, ids: IdArray) -> None:
        """A clock has nothing to draw."""
