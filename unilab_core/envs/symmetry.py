"""The left/right mirror image of a legged robot's observations and actions.

Known per observation function: a vector keeps x and z, a pseudo-vector (rotation) keeps y, joints
and feet change sides. One unknown function, and the task has no known mirror image.
"""

from unilab_core.config.env import EnvConfig, ObservationTermConfig
from unilab_core.contracts import MirrorMap, Symmetry
from unilab_core.robots.robot import RobotModel

_VECTOR = ((0, 1, 2), (1.0, -1.0, 1.0))
_ROTATION = ((0, 1, 2), (-1.0, 1.0, -1.0))
_PLANAR_COMMAND = ((0, 1, 2), (1.0, -1.0, -1.0))
"""x and y velocity, yaw rate"""

Part = tuple[tuple[int, ...], tuple[float, ...]]


def mirror_symmetry(config: EnvConfig, robot: RobotModel) -> Symmetry | None:
    """The mirror image of a task, or None if a term's image is not known."""
    if not robot.mirror_joints:
        return None
    policy = _group(config.observations["policy"], config, robot)
    critic = _group(config.observations.get("critic", {}), config, robot)
    action_functions = {term.function for term in config.actions.values()}
    if policy is None or critic is None or action_functions != {"joint_position"}:
        return None
    joints = MirrorMap(index=robot.mirror_joints, sign=robot.mirror_signs)
    return Symmetry(obs=policy, critic_obs=critic or policy, action=joints)


def _group(
    terms: dict[str, ObservationTermConfig], config: EnvConfig, robot: RobotModel
) -> MirrorMap | None:
    index: list[int] = []
    sign: list[float] = []
    for term in terms.values():
        part = _part(term, config, robot)
        if part is None or term.history != 1:
            return None
        start = len(index)
        index += [start + at for at in part[0]]
        sign += part[1]
    return MirrorMap(index=tuple(index), sign=tuple(sign))


def _part(term: ObservationTermConfig, config: EnvConfig, robot: RobotModel) -> Part | None:
    joints = (robot.mirror_joints, robot.mirror_signs)
    feet = robot.mirror_feet
    one = (1.0,) * len(feet)
    if term.function == "command":
        command = config.commands[str(term.params["command"])]
        return _PLANAR_COMMAND if command.function == "uniform_velocity" else None
    known: dict[str, Part] = {
        "base_ang_vel": _ROTATION,
        "projected_gravity": _VECTOR,
        "base_lin_vel": _VECTOR,
        "joint_pos_rel": joints,
        "joint_vel": joints,
        "last_action": joints,
        "phase_sines": (feet, one),
    }
    if feet[:2] == (1, 0):  # the two feet that the term shows are each other's image
        known["phase_sin_cos"] = ((1, 0, 3, 2), (1.0,) * 4)
    return known.get(term.function)
