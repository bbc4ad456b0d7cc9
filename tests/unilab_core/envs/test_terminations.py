"""Termination terms and their manager."""

import numpy as np
import pytest

from unilab_core.config.env import TerminationTermConfig
from unilab_core.envs.managers.termination import TerminationManager
from unilab_core.envs.mdp import terminations


def masks(num_envs=2):
    return np.zeros(num_envs, bool), np.zeros(num_envs, bool)


@pytest.fixture
def manager(view):
    return TerminationManager(
        {
            "time_out": TerminationTermConfig(function="time_out", time_out=True),
            "low": TerminationTermConfig(function="base_too_low", params={"limit_m": 0.12}),
        },
        view,
    )


def test_time_out_comes_with_the_last_step(view):
    assert terminations.time_out(view).tolist() == [False, True]


def test_bad_orientation_is_a_tilt_beyond_the_limit(view):
    # cos 60 deg = .5: gravity_z -1 is upright, -.4359 is 64.2 deg.
    assert terminations.bad_orientation(view, limit_rad=1.0472).tolist() == [False, True]
    view.robot.gravity_b[1, 2] = -0.51  # 59.3 deg
    assert terminations.bad_orientation(view, limit_rad=1.0472).tolist() == [False, False]


def test_base_too_low_is_strict(view):
    assert terminations.base_too_low(view, limit_m=0.12).tolist() == [False, True]
    assert terminations.base_too_low(view, limit_m=0.119).tolist() == [False, False]


def test_a_fall_in_the_last_step_is_terminated_and_not_truncated(manager, view):
    terminated, truncated = masks()
    manager.compute(view, None, terminated, truncated)
    assert terminated.tolist() == [False, True]
    assert truncated.tolist() == [False, False]
    log = {}
    manager.log(np.array([1]), truncated, log)
    assert log == {
        "Episode_Termination/time_out": 0.0,
        "Episode_Termination/low": 1.0,
        "Episode_Termination/unstable": 0.0,
    }


def test_a_plain_time_out_is_truncated_and_counted_once(manager, view):
    view.robot.base_height[1] = 0.3
    terminated, truncated = masks()
    manager.compute(view, None, terminated, truncated)
    assert (terminated.tolist(), truncated.tolist()) == ([False, False], [False, True])
    log = {}
    manager.log(np.array([1]), truncated, log)
    assert log["Episode_Termination/time_out"] == 1.0
    assert log["Episode_Termination/low"] == 0.0


def test_unstable_physics_terminates_and_is_counted(manager, view):
    view.robot.base_height[:] = 0.3
    view.episode_steps[:] = 0
    terminated, truncated = masks()
    manager.compute(view, np.array([True, False]), terminated, truncated)
    assert (terminated.tolist(), truncated.any()) == ([True, False], False)
    log = {}
    manager.log(np.array([0]), truncated, log)
    assert log["Episode_Termination/unstable"] == 1.0


def test_counts_are_zero_in_a_step_without_ends(manager):
    log = {}
    manager.log(np.array([], int), np.zeros(2, bool), log)
    assert set(log.values()) == {0.0}
    assert tuple(log) == manager.log_keys
