"""ActionManager: actions of the policy -> targets of the actuators.

Each term owns a block of the action vector and of the actuators, in the order of the configuration.
Actions that are not finite are an error at once: they would poison the physics and, through it,
every transition after.
"""

import math

import numpy as np

from unilab_core.config.env import ActionTermConfig
from unilab_core.contracts import FloatArray, IdArray, PhysicsArray
from unilab_core.envs.columns import column_block
from unilab_core.envs.managers.resolve import resolve_term
from unilab_core.envs.mdp import actions
from unilab_core.envs.mdp.actions import ActionTerm
from unilab_core.robots.robot import RobotModel
from unilab_core.run.failures import NonFiniteError


class ActionManager:
    """All action terms; keeps this step's actions and the previous ones as columns."""

    def __init__(
        self, terms: dict[str, ActionTermConfig], robot: RobotModel, num_envs: int
    ) -> None:
        self._terms: list[ActionTerm] = []
        for name, config in terms.items():
            path = f"env.actions.{name}"
            term = resolve_term(
                actions, config.function, config.params, ("robot", "num_envs"), path
            )
            self._terms.append(term(robot, num_envs, **config.params))
        widths = [term.width for term in self._terms]
        self._starts = np.concatenate([[0], np.cumsum(widths)]).tolist()
        self.width: int = self._starts[-1]
        self.low, self.high = _bounds(self._terms)
        self._num_envs = num_envs
        self._block = column_block(self.width, num_envs)
        self._previous_block = column_block(self.width, num_envs)
        self._valid: FloatArray = np.zeros((num_envs, self.width), np.float32)
        self.action: FloatArray = self._block.T  # [E, A]
        self.previous_action: FloatArray = self._previous_block.T  # [E, A]

    def validate(self, values: FloatArray, step: int) -> None:
        """Refuse a wrong shape or a number that is not finite; clip where a term says so."""
        if values.shape != self._valid.shape:
            raise ValueError(f"actions: got shape {values.shape}, expected {self._valid.shape}")
        np.copyto(self._valid, values, casting="same_kind")
        # A finite sum of squares proves that each is finite.
        flat = self._valid.ravel()
        if not math.isfinite(np.dot(flat, flat)):
            finite = np.isfinite(self._valid).all(axis=1)
            if not finite.all():
                raise NonFiniteError(source="action", env=int(np.argmin(finite)), step=step)
        for term, start in zip(self._terms, self._starts, strict=False):
            term.clip(self._valid[:, start : start + term.width])

    def process(self) -> None:
        """Remember the actions and compute the targets."""
        np.copyto(self._previous_block, self._block)
        np.copyto(self.action, self._valid)
        for term, start in zip(self._terms, self._starts, strict=False):
            term.process(self._valid[:, start : start + term.width])

    def apply(self, ctrl: PhysicsArray) -> None:
        """Write the targets into the actuators."""
        for term, start in zip(self._terms, self._starts, strict=False):
            np.copyto(ctrl[:, start : start + term.width], term.targets)

    def reset(self, ids: IdArray) -> None:
        """A new episode has no last action."""
        self._block[:, ids] = 0.0
        self._previous_block[:, ids] = 0.0


def _bounds(
    terms: list[ActionTerm],
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Bounds of the whole action vector; None when any term is unbounded."""
    ranges = [(term.range, term.width) for term in terms]
    low: list[float] = []
    high: list[float] = []
    for bounds, width in ranges:
        if bounds is None:
            return None, None
        low.extend([bounds[0]] * width)
        high.extend([bounds[1]] * width)
    return tuple(low), tuple(high)
