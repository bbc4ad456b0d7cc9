"""The `mujoco` backend: `mujoco.batch.Batch`, a C++ thread pool over E simulations of one model.

Positions, velocities and controls are live views of the batch's state rows, so that writing a row
is setting that simulation's state. Sensors are computed inside every substep and describe its
start; asking the batch for current ones would cost a second position pass per control step
(15 %), while everything that observations need follows exactly from positions and velocities.

Non-finite states must stay visible: the model disables MuJoCo's silent automatic reset. Whoever
reads the states ends such episodes and counts them, so the engine's own warnings go to the debug
log instead of standard error and a MUJOCO_LOG.TXT in the working directory.
"""

# pyright: reportAttributeAccessIssue=false
# (names of the compiled part of mujoco have no stubs)

import logging
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError
from numpy.typing import NDArray

from unilab_core.contracts import BoolArray, IdArray, PhysicsArray

log = logging.getLogger(__name__)


class MujocoBackend:
    """One batch of simulations; implements `Backend`.

    Args:
        model: compiled model; its keyframe 0 is the home pose.
        num_envs: simulations.
        num_threads: threads of the pool, the caller's included.
    """

    device: str | None = None

    def __init__(self, model: mujoco.MjModel, num_envs: int, num_threads: int) -> None:
        if num_envs < 1 or num_threads < 1:
            raise ValueError(
                f"num_envs, num_threads: got {num_envs}, {num_threads}, expected at least 1"
            )
        if mujoco.get_mju_user_warning() is None:
            mujoco.set_mju_user_warning(log.debug)
        self.model = model
        self.num_envs = num_envs
        self._batch = Batch(model, num_envs, num_threads)
        self.qpos: PhysicsArray = self._batch.bind("qpos")
        self.qvel: PhysicsArray = self._batch.bind("qvel")
        self.ctrl: PhysicsArray = self._batch.bind("ctrl")
        self.sensordata: PhysicsArray = self._batch.bind("sensordata")
        self.failed: BoolArray | None = None
        self._batch.reset(keyframe=0)
        self._home_row: PhysicsArray = self._batch.state[0].copy()

    def step(self, num_substeps: int) -> None:
        """Advance every simulation; one that the engine refuses is marked in `failed`."""
        self.failed = None
        try:
            self._batch.step(nstep=num_substeps)
        except SimulationError as error:
            self._mark_failed(error)

    def reset_rows(self, ids: IdArray) -> None:
        """Home pose at rest, with a cold solver: nothing of the old episode remains."""
        self._batch.state[ids] = self._home_row

    def forward_rows(self, ids: IdArray) -> None:
        """Compute sensors of these simulations from their present state."""
        try:
            self._batch.forward(ids)
        except SimulationError as error:
            self._mark_failed(error)

    def model_field(self, name: str) -> NDArray[Any]:
        """Per-simulation values of a model field; the first call gives the field a copy each."""
        return self._batch.expand(name)

    def commit_model(self) -> None:
        """Derive inertias and inverse weights from edited masses; `E` calls of mj_setConst."""
        self._batch.set_const()

    def close(self) -> None:
        """Drop the batch and with it its threads; arrays already handed out stay valid."""
        del self._batch

    def _mark_failed(self, error: SimulationError) -> None:
        if self.failed is None:
            self.failed = np.zeros(self.num_envs, np.bool_)
        self.failed[error.ids] = True
