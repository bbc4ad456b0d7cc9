"""Go2 follows joystick velocity commands on flat ground."""

from unilab_core.config.env import EventTermConfig, TerminationTermConfig
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
        seed=20_240,
        duration_s=10.0,
        dropped_s=1.0,
        starts={
            "reset_base": EventTermConfig(
                function="reset_root_state",
                mode="reset",
                params={
                    "position_xy_m": 0.5,
                    "yaw_rad": 3.14159,
                    "linear_velocity": 0.5,
                    "angular_velocity": 0.5,
                },
            ),
            "pd_gains": EventTermConfig(
                function="randomize_pd_gains",
                mode="reset",
                params={"kp_factor": [0.9, 1.1], "kd_factor": [0.9, 1.1]},
            ),
        },
        falls={
            "bad_orientation": TerminationTermConfig(
                function="bad_orientation", params={"limit_rad": 1.0472}
            ),
            "base_too_low": TerminationTermConfig(
                function="base_too_low", params={"limit_m": 0.12}
            ),
        },
        max_error_vel_xy=0.20,
        max_error_vel_yaw=0.20,
        max_fall_rate=0.05,
    ),
)
