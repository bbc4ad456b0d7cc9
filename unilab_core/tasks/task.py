"""Task: a robot, the backends that can simulate it, and how its policies are judged."""

from dataclasses import dataclass

from unilab_core.robots.robot import RobotModel


@dataclass(kw_only=True, slots=True, frozen=True)
class VelocityEvaluation:
    """Deterministic judgement of a velocity-tracking policy: every command, several seeds.

    The grid is the product of the three axes. Thresholds are part of the task: a score means the
    same for every algorithm and every version.
    """

    command: str
    """Command term that the grid replaces."""
    lin_vel_x: tuple[float, ...]
    lin_vel_y: tuple[float, ...]
    ang_vel_yaw: tuple[float, ...]
    num_seeds: int
    duration_s: float
    dropped_s: float
    """Start of each episode that does not count."""
    max_error_vel_xy: float
    max_error_vel_yaw: float
    max_fall_rate: float


@dataclass(kw_only=True, slots=True, frozen=True)
class Task:
    """One entry of the registry."""

    name: str
    robot: RobotModel
    sims: tuple[str, ...]
    evaluation: VelocityEvaluation
