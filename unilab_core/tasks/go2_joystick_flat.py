"""Go2 follows joystick velocity commands on flat ground."""

from unilab_core.robots.go2.constants import GO2
from unilab_core.tasks.task import Task, VelocityEvaluation

GO2_JOYSTICK_FLAT = Task(
    name="go2_joystick_flat",
    robot=GO2,
    sims=("mujoco",),
    evaluation=VelocityEvaluation(
        command="velocity",
        lin_vel_x=(-0.6, 0.0, 0.5, 1.0),
        lin_vel_y=(-0.4, 0.0, 0.4),
        ang_vel_yaw=(-0.8, 0.0, 0.8),
        num_seeds=4,
        duration_s=10.0,
        dropped_s=1.0,
        max_error_vel_xy=0.20,
        max_error_vel_yaw=0.20,
        max_fall_rate=0.05,
    ),
)
