"""The last K vector steps of every environment, for the dump that the NaN guard writes.

One ring of preallocated arrays per field, overwritten in place: what it costs is one copy of the
state per step. The physics fields keep their precision, so that a step can be computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unilab_core.contracts import FloatArray, StepResult

MAX_BYTES = 64 << 20
"""Many environments shorten the history rather than take the memory of the replay."""


class StateHistory:
    """`begin` before a step, `finish` after it."""

    def __init__(
        self, num_steps: int, before: Mapping[str, NDArray[Any]], action_width: int
    ) -> None:
        """Allocate the rings.

        Args:
            num_steps: K; fewer where K steps would take more than MAX_BYTES.
            before: one sample of everything that `begin` gets, [E, width] each.
            action_width: A.
        """
        num_envs = next(iter(before.values())).shape[0]
        rows: dict[str, tuple[tuple[int, ...], Any]] = {
            **{name: (values.shape, values.dtype) for name, values in before.items()},
            "action": ((num_envs, action_width), np.dtype(np.float32)),
            "reward": ((num_envs,), np.dtype(np.float32)),
            "terminated": ((num_envs,), np.dtype(np.bool_)),
            "truncated": ((num_envs,), np.dtype(np.bool_)),
        }
        step_bytes = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in rows.values())
        self.num_steps = max(1, min(num_steps, MAX_BYTES // step_bytes))
        self._rings = {
            name: np.zeros((self.num_steps, *shape), dtype) for name, (shape, dtype) in rows.items()
        }
        self._before = tuple(before)
        self._written = 0

    def begin(self, before: Mapping[str, NDArray[Any]], actions: FloatArray) -> None:
        """Keep the state that the step starts from and the actions that it gets."""
        place = self._written % self.num_steps
        for name in self._before:
            np.copyto(self._rings[name][place], before[name])
        np.copyto(self._rings["action"][place], actions)
        for name in ("reward", "terminated", "truncated"):
            self._rings[name][place] = 0
        self._written += 1

    def finish(self, result: StepResult) -> None:
        """Keep what the step returned."""
        place = (self._written - 1) % self.num_steps
        np.copyto(self._rings["reward"][place], result.reward)
        np.copyto(self._rings["terminated"][place], result.terminated)
        np.copyto(self._rings["truncated"][place], result.truncated)

    def last(self, envs: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        """Every field of these environments in the last K steps, oldest first."""
        count = min(self._written, self.num_steps)
        places = np.arange(self._written - count, self._written) % self.num_steps
        return {name: ring[places][:, envs] for name, ring in self._rings.items()}
