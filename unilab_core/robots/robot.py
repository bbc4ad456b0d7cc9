"""A robot as data: its MJCF file, its names, and the model variants built from them.

`fast` physics keeps only the contacts that the task needs (feet, belly and head against the floor)
with a pyramidal cone; `reference` lets every collision geom touch the floor and each other, with
an elliptic cone, impratio 100 and condim 6. Both have the same masses, joints, gains and sensors.
"""

# pyright: reportAttributeAccessIssue=false
# (names of the compiled part of mujoco have no stubs)

from dataclasses import dataclass
from pathlib import Path

import mujoco

VISUAL_GROUP = 2
CONTACT_GROUP = 3
COLLISION_GROUP = 4
PHYSICS = ("fast", "reference")

_REFERENCE_IMPRATIO = 100.0
_REFERENCE_CONDIM = 6


@dataclass(kw_only=True, slots=True, frozen=True)
class RobotModel:
    """Constants of one robot; joints, actuators and the default pose share one order."""

    name: str
    xml_path: Path
    base_body: str
    imu_site: str
    joint_names: tuple[str, ...]
    default_joint_pos_rad: tuple[float, ...]
    home_height_m: float
    """Height of the base at the start of an episode."""
    foot_geoms: tuple[str, ...]
    foot_position_sensors: tuple[str, ...]
    """Sensors (x, y, z) of the feet, in the order of `foot_geoms`."""
    foot_touch_sensors: tuple[str, ...]
    """Contact force sensors of the feet, in the same order."""
    mirror_joints: tuple[int, ...] = ()
    """Joint on the other side, per joint; empty where the robot has no mirror image."""
    mirror_signs: tuple[float, ...] = ()
    """-1 for joints whose axis lies in the mirror plane."""
    mirror_feet: tuple[int, ...] = ()
    """Foot on the other side, per foot."""


def build_model(
    robot: RobotModel, physics: str, sim_dt_s: float, *, visuals: bool = False
) -> mujoco.MjModel:
    """Compile the robot's MJCF for one kind of physics.

    Args:
        robot: which robot.
        physics: one of `PHYSICS`.
        sim_dt_s: seconds per substep.
        visuals: keep visual geoms and cameras; without them every substep is cheaper and the
            physics is the same.
    """
    if physics not in PHYSICS:
        raise ValueError(f"physics: got {physics!r}, expected one of {', '.join(PHYSICS)}")
    spec = mujoco.MjSpec.from_file(str(robot.xml_path))
    spec.option.timestep = sim_dt_s
    if not visuals:
        _strip_visuals(spec)
    if physics == "reference":
        _use_reference_contacts(spec)
    elif not visuals:
        _delete_group(spec, COLLISION_GROUP)
    return spec.compile()


def _strip_visuals(spec: mujoco.MjSpec) -> None:
    _delete_group(spec, VISUAL_GROUP)
    for item in [*spec.cameras, *spec.lights]:
        spec.delete(item)


def _delete_group(spec: mujoco.MjSpec, group: int) -> None:
    for geom in [geom for geom in spec.geoms if geom.group == group]:
        spec.delete(geom)


def _use_reference_contacts(spec: mujoco.MjSpec) -> None:
    """Everything collides with everything but its parent body, with the accurate cone."""
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = _REFERENCE_IMPRATIO
    for geom in spec.geoms:
        if geom.group == VISUAL_GROUP:
            continue
        geom.contype, geom.conaffinity = 1, 1
        if geom.group == CONTACT_GROUP:
            geom.condim = _REFERENCE_CONDIM
