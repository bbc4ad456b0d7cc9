"""Backend names as `--sim` spells them."""

# pyright: reportAttributeAccessIssue=false
# (names of the compiled part of mujoco have no stubs)

from collections.abc import Callable

import mujoco

from unilab_core.backends.mujoco_batch import MujocoBackend
from unilab_core.config.errors import unknown_name
from unilab_core.contracts import Backend

BACKENDS: dict[str, Callable[[mujoco.MjModel, int, int], Backend]] = {"mujoco": MujocoBackend}
"""Name -> constructor(model, num_envs, num_threads)."""


def make_backend(sim: str, model: mujoco.MjModel, num_envs: int, num_threads: int) -> Backend:
    """Build the backend called `sim`; a ValueError names the nearest one."""
    if sim not in BACKENDS:
        raise unknown_name("backend", sim, BACKENDS)
    return BACKENDS[sim](model, num_envs, num_threads)
