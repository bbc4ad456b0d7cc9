"""Reward terms against numbers worked out by hand for the two robots of the `view` fixture."""

import numpy as np
import pytest

from unilab_core.envs.mdp import rewards


def test_tracking_lin_vel_is_a_bell_over_the_planar_error(view):
    # Errors (.2, -.1): squares sum to .05; exp(-.05 / .5) = exp(-.1) = .904837.
    value = rewards.tracking_lin_vel(view, "velocity", sigma=0.5)
    assert value == pytest.approx([0.904837, 1.0], abs=1e-6)


def test_tracking_ang_vel_is_a_bell_over_the_yaw_error(view):
    # Error .2 - .7 = -.5: exp(-.25 / .5) = exp(-.5) = .606531.
    value = rewards.tracking_ang_vel(view, "velocity", sigma=0.5)
    assert value == pytest.approx([0.606531, 1.0], abs=1e-6)


def test_lin_vel_z_is_the_squared_vertical_velocity(view):
    assert rewards.lin_vel_z(view) == pytest.approx([0.04, 0.0])


def test_ang_vel_xy_adds_the_squares_of_roll_and_pitch_rate(view):
    # .09 + .16
    assert rewards.ang_vel_xy(view) == pytest.approx([0.25, 0.0])


def test_base_height_is_the_squared_distance_from_the_target(view):
    # Errors -.05 and -.181 m.
    value = rewards.base_height(view, target_m=0.3)
    assert value == pytest.approx([0.0025, 0.032761], rel=1e-4)


def test_action_rate_adds_the_squared_changes(view):
    # (.5 - .2)^2 + (0 + .4)^2 = .09 + .16
    assert rewards.action_rate(view) == pytest.approx([0.25, 0.0])


def test_similar_to_default_adds_absolute_angles(view):
    assert rewards.similar_to_default(view) == pytest.approx([0.3, 0.0])


def test_contact_counts_feet_that_touch_exactly_in_stance(view):
    # Robot 0: stance stance swing swing; touching yes no yes no -> right wrong wrong right.
    # Robot 1: all swing; forces .2 and .1 N against the threshold .1: only the first touches.
    value = rewards.gait_contact(view, "gait", stance_fraction=0.6, threshold_n=0.1)
    assert value == pytest.approx([0.5, 0.75])


def test_swing_feet_z_rewards_swing_feet_at_the_target_height_only(view):
    # Robot 0: feet 2 and 3 swing at .2 and .1 m: (exp(-.01 / .01) + 1) / 4 = 1.367879 / 4.
    # Robot 1: all swing at 0, .1, .3, .05: (e^-1 + 1 + e^-4 + e^-.25) / 4 = 2.164996 / 4.
    value = rewards.swing_feet_z(view, "gait", stance_fraction=0.6, target_m=0.1, sigma=0.01)
    assert value == pytest.approx([1.367879 / 4, 2.164996 / 4], abs=1e-5)


def test_terms_do_not_write_what_they_read(view):
    arrays = [view.action, view.previous_action, *view.commands.values()]
    arrays += list(vars(view.robot).values())
    before = [values.copy() for values in arrays]
    rewards.tracking_lin_vel(view, "velocity", sigma=0.5)
    rewards.base_height(view, target_m=0.3)
    rewards.action_rate(view)
    rewards.similar_to_default(view)
    rewards.gait_contact(view, "gait", stance_fraction=0.6, threshold_n=0.1)
    rewards.swing_feet_z(view, "gait", stance_fraction=0.6, target_m=0.1, sigma=0.01)
    for now, then in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(now, then)
