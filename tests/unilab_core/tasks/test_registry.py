"""Task ids, and the evaluation that is part of a task."""

import dataclasses

import pytest

from unilab_core.tasks.registry import find_task, register, task_ids


def test_the_registered_tasks():
    assert task_ids() == ("go2_joystick_flat",)
    assert find_task("go2_joystick_flat").sims == ("mujoco",)


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(ValueError, match=r"unknown task 'go2_joystick'.*go2_joystick_flat"):
        find_task("go2_joystick")


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="registered already"):
        register(find_task("go2_joystick_flat"))


def test_the_evaluation_of_go2_joystick_flat_is_frozen():
    """36 commands x 4 starts, 10 s, first second dropped; thresholds .20, .20, .05."""
    judge = find_task("go2_joystick_flat").evaluation
    assert judge.lin_vel_x == (-0.6, 0.0, 0.5, 1.0)
    assert judge.lin_vel_y == (-0.4, 0.0, 0.4)
    assert judge.ang_vel_yaw == (-0.8, 0.0, 0.8)
    assert len(judge.commands) == 36 * 4
    assert len(set(judge.commands)) == 36
    assert (judge.duration_s, judge.dropped_s, judge.seed) == (10.0, 1.0, 20_240)
    limits = (judge.max_error_vel_xy, judge.max_error_vel_yaw, judge.max_fall_rate)
    assert limits == (0.20, 0.20, 0.05)
    assert judge.falls["bad_orientation"].params == {"limit_rad": 1.0472}
    assert judge.falls["base_too_low"].params == {"limit_m": 0.12}
    assert judge.starts["reset_base"].params == {
        "position_xy_m": 0.5,
        "yaw_rad": 3.14159,
        "linear_velocity": 0.5,
        "angular_velocity": 0.5,
    }
    assert judge.starts["pd_gains"].params == {"kp_factor": [0.9, 1.1], "kd_factor": [0.9, 1.1]}
    with pytest.raises(dataclasses.FrozenInstanceError):
        judge.max_fall_rate = 1.0
