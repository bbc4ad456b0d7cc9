"""Action terms."""

from typing import Protocol

import numpy as np

from unilab_core.contracts import FloatArray
from unilab_core.robots.robot import RobotModel


class ActionTerm(Protocol):
    """Meaning of one block of the action vector."""

    width: int
    range: tuple[float, float] | None
    """Bounds of each action; None: unbounded."""
    targets: FloatArray  # [E, width]

    def clip(self, values: FloatArray) -> None:
        """Bring actions into the range, in place."""
        ...

    def process(self, values: FloatArray) -> None:
        """Compute `targets` from clipped actions."""
        ...


class joint_position:  # noqa: N801 - terms are named as the configuration spells them
    """Position targets of all joints: default pose + scale x action, rad.

    Args:
        robot: whose joints.
        num_envs: rows.
        scale: radians per unit of action.
        clip: [low, high] of an action, or None.
    """

    def __init__(
        self,
        robot: RobotModel,
        num_envs: int,
        scale: float,
        clip: tuple[float, float] | None = None,
    ) -> None:
        self.width = len(robot.joint_names)
        self.range = None if clip is None else (float(clip[0]), float(clip[1]))
        self.targets: FloatArray = np.zeros((num_envs, self.width), np.float32)
        self._scale = np.float32(scale)
        # A full matrix instead of a row: the sum is then one pass over contiguous memory.
        self._default = np.tile(np.array(robot.default_joint_pos_rad, np.float32), (num_envs, 1))

    def clip(self, values: FloatArray) -> None:
        """Bring actions into the range, in place."""
        if self.range is not None:
            np.clip(values, *self.range, out=values)

    def process(self, values: FloatArray) -> None:
        """Compute `targets`."""
        np.multiply(values, self._scale, out=self.targets)
        np.add(self.targets, self._default, out=self.targets)
