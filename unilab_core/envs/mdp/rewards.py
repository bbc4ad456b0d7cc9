"""Reward terms: (env) -> [E], raw: the manager multiplies by weight and dt.

Symbols: v, omega velocity and angular velocity in the base frame, q joint angles, a actions,
phi gait phase of a foot in [0, 1): stance while phi < stance_fraction, then swing.
"""

from functools import cache

import numpy as np

from unilab_core.contracts import FloatArray
from unilab_core.envs.term_view import TermView


def tracking_lin_vel(env: TermView, command: str, sigma: float) -> FloatArray:
    """exp(-|v_cmd,xy - v_xy|^2 / sigma)."""
    error = env.commands[command][:, :2] - env.robot.lin_vel_b[:, :2]
    error *= error
    squared = error[:, 0] + error[:, 1]
    squared *= -1.0 / sigma
    return np.exp(squared, out=squared)


def tracking_ang_vel(env: TermView, command: str, sigma: float) -> FloatArray:
    """exp(-(omega_cmd - omega_z)^2 / sigma)."""
    error = env.commands[command][:, 2] - env.robot.ang_vel_b[:, 2]
    error *= error
    error *= -1.0 / sigma
    return np.exp(error, out=error)


def lin_vel_z(env: TermView) -> FloatArray:
    """v_z^2."""
    return np.square(env.robot.lin_vel_b[:, 2])


def ang_vel_xy(env: TermView) -> FloatArray:
    """omega_x^2 + omega_y^2."""
    squares = np.square(env.robot.ang_vel_b[:, :2])
    return squares[:, 0] + squares[:, 1]


def base_height(env: TermView, target_m: float) -> FloatArray:
    """(z - target)^2 of the base."""
    error = env.robot.base_height - target_m
    error *= error
    return error


def action_rate(env: TermView) -> FloatArray:
    """Sum over actions of (a_t - a_{t-1})^2."""
    change = env.action - env.previous_action
    change *= change
    return _row_sum(change)


def similar_to_default(env: TermView) -> FloatArray:
    """Sum over joints of |q - q_default|."""
    return _row_sum(np.abs(env.robot.joint_pos_rel))


def gait_contact(
    env: TermView, command: str, stance_fraction: float, threshold_n: float
) -> FloatArray:
    """Share of the feet that touch the ground exactly while their phase says stance."""
    stance = env.commands[command] < stance_fraction
    touching = env.robot.foot_force > threshold_n
    return _row_mean(np.equal(stance, touching).astype(np.float32))


def swing_feet_z(
    env: TermView, command: str, stance_fraction: float, target_m: float, sigma: float
) -> FloatArray:
    """Mean over the feet of [swing] x exp(-(z_foot - target)^2 / sigma), z of the foot's centre."""
    swing = (env.commands[command] >= stance_fraction).astype(np.float32)
    error = env.robot.foot_height - target_m
    error *= error
    error *= -1.0 / sigma
    np.exp(error, out=error)
    error *= swing
    return _row_mean(error)


def _row_sum(values: FloatArray) -> FloatArray:
    """[E, w] -> [E]; a matrix product, which costs less than a reduction for small w."""
    return np.dot(values, _weights(values.shape[1], 1.0))


def _row_mean(values: FloatArray) -> FloatArray:
    """[E, w] -> [E]."""
    return np.dot(values, _weights(values.shape[1], 1.0 / values.shape[1]))


@cache
def _weights(width: int, weight: float) -> FloatArray:
    return np.full(width, weight, np.float32)
