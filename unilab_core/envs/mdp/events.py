"""Event terms: (context, ids, **params) change the simulations `ids`.

Positions and velocities are written into the backend's rows; model fields become per-environment
arrays on first use. Whoever edits masses or frames calls `commit_model` afterwards.
"""

# pyright: reportAttributeAccessIssue=false
# (names of the compiled part of mujoco have no stubs)

from dataclasses import dataclass

import mujoco
import numpy as np

from unilab_core.contracts import Backend, IdArray, PhysicsArray
from unilab_core.robots.robot import RobotModel

Range = tuple[float, float]


@dataclass(kw_only=True, slots=True, frozen=True)
class EventContext:
    """What an event may use."""

    num_envs: int
    step_dt_s: float
    backend: Backend
    model: mujoco.MjModel
    robot: RobotModel
    rng: np.random.Generator


def reset_root_state(
    context: EventContext,
    ids: IdArray,
    position_xy_m: float,
    yaw_rad: float,
    linear_velocity: float,
    angular_velocity: float,
) -> None:
    """Place the base near the origin, heading anywhere, with a push in all six directions."""
    backend = context.backend
    draw = 2.0 * context.rng.random((len(ids), 9)) - 1.0  # x, y, yaw, six velocities
    backend.qpos[ids, :2] += position_xy_m * draw[:, :2]
    half_yaw = 0.5 * yaw_rad * draw[:, 2]
    backend.qpos[ids, 3] = np.cos(half_yaw)
    backend.qpos[ids, 6] = np.sin(half_yaw)
    draw[:, 3:6] *= linear_velocity
    draw[:, 6:] *= angular_velocity
    backend.qvel[ids, :6] = draw[:, 3:]


def randomize_pd_gains(
    context: EventContext, ids: IdArray, kp_factor: Range, kd_factor: Range
) -> None:
    """Multiply each joint's nominal stiffness and damping by factors of their own."""
    model = context.model
    draw = context.rng.random((2, len(ids), model.nu))
    kp = model.actuator_gainprm[:, 0] * _between(kp_factor, draw[0])
    kd = -model.actuator_biasprm[:, 2] * _between(kd_factor, draw[1])
    gain = context.backend.model_field("actuator_gainprm")
    bias = context.backend.model_field("actuator_biasprm")
    gain[ids, :, 0] = kp
    bias[ids, :, 1] = -kp
    bias[ids, :, 2] = -kd


def randomize_body_mass(context: EventContext, ids: IdArray, body: str, added_kg: Range) -> None:
    """Add mass to a body; its inertia grows in proportion."""
    index = context.model.body(body).id
    nominal = context.model.body_mass[index]
    factor = 1.0 + context.rng.uniform(*added_kg, len(ids)) / nominal
    context.backend.model_field("body_mass")[ids, index] = nominal * factor
    inertia = context.backend.model_field("body_inertia")
    inertia[ids, index] = context.model.body_inertia[index] * factor[:, None]
    context.backend.commit_model()


def randomize_body_com(
    context: EventContext, ids: IdArray, body: str, offset_m: tuple[Range, Range, Range]
) -> None:
    """Move a body's centre of mass, by axis."""
    index = context.model.body(body).id
    low, high = np.array(offset_m).T
    offset = context.rng.uniform(low, high, (len(ids), 3))
    context.backend.model_field("body_ipos")[ids, index] = context.model.body_ipos[index] + offset
    context.backend.commit_model()


def randomize_friction(context: EventContext, ids: IdArray, geoms: str, sliding: Range) -> None:
    """Draw one sliding friction per environment for the feet (`geoms: feet`) or a named geom."""
    names = context.robot.foot_geoms if geoms == "feet" else (geoms,)
    columns = [context.model.geom(name).id for name in names]
    draw = context.rng.uniform(*sliding, len(ids))
    field = context.backend.model_field("geom_friction")
    for column in columns:
        field[ids, column, 0] = draw


def push(context: EventContext, ids: IdArray, velocity: tuple[float, float, float]) -> None:
    """Add a random velocity to the base, up to +-`velocity` m/s by world axis."""
    bound = np.array(velocity)
    context.backend.qvel[ids, :3] += context.rng.uniform(-bound, bound, (len(ids), 3))


def _between(bounds: Range, unit: PhysicsArray) -> PhysicsArray:
    """Uniform numbers of [0, 1) stretched to [low, high)."""
    return bounds[0] + (bounds[1] - bounds[0]) * unit
