"""Observation terms: (env) -> [E, w]."""

import numpy as np

from unilab_core.contracts import FloatArray
from unilab_core.envs.term_view import TermView

_TWO_PI = np.float32(2.0 * np.pi)


def base_ang_vel(env: TermView) -> FloatArray:
    """Angular velocity in the base frame, rad/s: what a gyroscope reads."""
    return env.robot.ang_vel_b


def base_lin_vel(env: TermView) -> FloatArray:
    """Velocity of the IMU in its own frame, m/s: what a velocimeter would read."""
    return env.robot.lin_vel_b


def projected_gravity(env: TermView) -> FloatArray:
    """Direction of gravity in the base frame; (0, 0, -1) upright."""
    return env.robot.gravity_b


def joint_pos_rel(env: TermView) -> FloatArray:
    """Joint angles relative to the default pose, rad."""
    return env.robot.joint_pos_rel


def joint_vel(env: TermView) -> FloatArray:
    """Joint velocities, rad/s."""
    return env.robot.joint_vel


def last_action(env: TermView) -> FloatArray:
    """The action that led here, before scale and offset; zero at the start of an episode."""
    return env.action


def command(env: TermView, command: str) -> FloatArray:
    """Current value of a command."""
    return env.commands[command]


def phase_sines(env: TermView, command: str) -> FloatArray:
    """sin(2 pi phase) of each foot's gait phase."""
    angle = env.commands[command] * _TWO_PI
    return np.sin(angle, out=angle)


def phase_sin_cos(env: TermView, command: str) -> FloatArray:
    """[E, 4]: sine and cosine of the first two feet's gait phase, which tell the whole phase."""
    angle = env.commands[command][:, :2] * _TWO_PI
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
