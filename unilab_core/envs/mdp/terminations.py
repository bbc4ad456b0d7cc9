"""Termination terms: (env) -> [E] of bool."""

import math

from unilab_core.contracts import BoolArray
from unilab_core.envs.term_view import TermView


def time_out(env: TermView) -> BoolArray:
    """The episode has lasted its full length."""
    return env.episode_steps >= env.max_episode_steps


def bad_orientation(env: TermView, limit_rad: float) -> BoolArray:
    """The base leans further than the limit away from upright."""
    return env.robot.gravity_b[:, 2] > -math.cos(limit_rad)


def base_too_low(env: TermView, limit_m: float) -> BoolArray:
    """The base is lower than the limit: the robot lies on the ground."""
    return env.robot.base_height < limit_m
