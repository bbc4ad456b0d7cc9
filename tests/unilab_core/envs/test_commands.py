"""Command terms, their manager, and the schedule of new goals."""

import numpy as np
import pytest

from unilab_core.config.env import CommandTermConfig
from unilab_core.envs.managers.command import NullCommandManager, make_command_manager
from unilab_core.envs.mdp.commands import gait_phase, uniform_velocity

STEP_DT_S = 0.02


def velocity(num_envs=1000, seed=0, **params):
    ranges = {"lin_vel_x": (-0.6, 1.0), "lin_vel_y": (-0.4, 0.4), "ang_vel_yaw": (-0.8, 0.8)}
    rng = np.random.default_rng(seed)
    return uniform_velocity(num_envs, STEP_DT_S, rng, **{**ranges, **params})


def trot(num_envs=2):
    rng = np.random.default_rng(0)
    return gait_phase(num_envs, STEP_DT_S, rng, frequency_hz=2.0, offsets=(0.0, 0.5, 0.5, 0.0))


def test_velocities_fill_their_ranges():
    term = velocity()
    term.reset(np.arange(1000))
    assert (term.value.min(axis=0) >= [-0.6, -0.4, -0.8]).all()
    assert (term.value.max(axis=0) <= [1.0, 0.4, 0.8]).all()
    # Uniform: mean within 5 standard errors (range / sqrt(12 n)) of the middle.
    middle, width = np.array([0.2, 0.0, 0.0]), np.array([1.6, 0.8, 1.6])
    assert (np.abs(term.value.mean(axis=0) - middle) < 5 * width / np.sqrt(12_000)).all()


def test_only_the_given_rows_are_drawn():
    term = velocity(num_envs=4)
    term.reset(np.array([1, 3]))
    assert (term.value[[0, 2]] == 0.0).all()
    assert (term.value[[1, 3]] != 0.0).all()


def test_standing_fraction_zeroes_whole_commands():
    term = velocity(standing_fraction=0.25)
    term.reset(np.arange(1000))
    standing = (term.value == 0.0).all(axis=1)
    assert ((term.value == 0.0).any(axis=1) == standing).all()
    assert 180 < standing.sum() < 320  # 250 +- 5 standard deviations


def test_a_held_command_is_never_drawn_again():
    term = velocity(num_envs=2)
    term.hold(np.array([[1.0, 0.0, 0.5], [0.0, 0.4, 0.0]], np.float32))
    term.reset(np.array([0, 1]))
    term.resample(np.array([0]))
    assert term.value == pytest.approx(np.array([[1.0, 0.0, 0.5], [0.0, 0.4, 0.0]]))


def test_a_trot_has_diagonal_legs_in_phase_and_the_pairs_half_a_period_apart():
    term = trot()
    term.reset(np.array([0, 1]))
    assert term.value.tolist() == [[0.0, 0.5, 0.5, 0.0]] * 2
    for _ in range(6):
        term.advance()
    # 6 steps x .02 s x 2 Hz = .24 of a period.
    assert term.value[0] == pytest.approx([0.24, 0.74, 0.74, 0.24], abs=1e-6)


def test_phases_return_exactly_after_each_period():
    term = trot()
    term.reset(np.array([0, 1]))
    seen = []
    for _ in range(1000):
        term.advance()
        seen.append(term.value[0].copy())
    periods = np.array(seen).reshape(40, 25, 4)
    np.testing.assert_allclose(periods, np.broadcast_to(periods[0], periods.shape), atol=2e-7)
    # The stance of a foot is the first 60 % of the period: 15 of 25 steps, in every period.
    stance = periods < np.float32(0.6)
    assert (stance.sum(axis=1)[:, [0, 3]] == 15).all()
    assert (periods >= 0.0).all()
    assert (periods < 1.0).all()


def test_the_clock_of_a_new_episode_starts_over():
    term = trot()
    for _ in range(7):
        term.advance()
    term.reset(np.array([1]))
    assert term.value[0] == pytest.approx([0.28, 0.78, 0.78, 0.28], abs=1e-6)
    assert term.value[1].tolist() == [0.0, 0.5, 0.5, 0.0]


def manager_with_interval(low_s, high_s, num_envs=3):
    config = CommandTermConfig(
        function="uniform_velocity",
        resampling_s=(low_s, high_s),
        params={"lin_vel_x": [0, 1], "lin_vel_y": [0, 1], "ang_vel_yaw": [0, 1]},
    )
    return make_command_manager(
        {"velocity": config},
        num_envs=num_envs,
        step_dt_s=STEP_DT_S,
        rng=np.random.default_rng(0),
    )


def test_goals_change_exactly_when_their_interval_is_over():
    manager = manager_with_interval(0.1, 0.1)  # 5 steps
    manager.reset(np.arange(3))
    values = manager.values["velocity"]
    nobody = np.zeros(3, bool)
    for step in range(1, 16):
        before = values.copy()
        manager.resample(nobody)
        changed = (values != before).any(axis=1)
        assert changed.all() == (step % 5 == 0)
        assert changed.any() == (step % 5 == 0)


def test_an_ending_episode_keeps_its_goal():
    manager = manager_with_interval(0.02, 0.02)
    manager.reset(np.arange(3))
    values = manager.values["velocity"]
    before = values.copy()
    manager.resample(np.array([False, True, False]))
    assert (values != before).any(axis=1).tolist() == [True, False, True]


def test_a_reset_restarts_the_interval():
    manager = manager_with_interval(0.08, 0.08, num_envs=2)  # 4 steps
    manager.reset(np.arange(2))
    values = manager.values["velocity"]
    nobody = np.zeros(2, bool)
    for _ in range(3):
        manager.resample(nobody)
    manager.reset(np.array([0]))
    before = values.copy()
    manager.resample(nobody)
    assert (values != before).any(axis=1).tolist() == [False, True]


def test_a_task_without_commands_has_a_manager_that_does_nothing():
    rng = np.random.default_rng(0)
    manager = make_command_manager({}, num_envs=2, step_dt_s=STEP_DT_S, rng=rng)
    assert isinstance(manager, NullCommandManager)
    manager.advance()
    manager.resample(np.zeros(2, bool))
    manager.reset(np.array([0]))
    assert manager.values == {}
