"""go2_joystick_flat as a whole: layout, order of the step, resets, broken physics."""

import dataclasses

import numpy as np
import pytest

from unilab_core.config.env import ActionTermConfig, CommandTermConfig

ZERO = np.zeros((4, 12), np.float32)

# Columns of the observation vector.
GYRO, GRAVITY = slice(0, 3), slice(3, 6)
JOINT_POS, JOINT_VEL, ACTION = slice(6, 18), slice(18, 30), slice(30, 42)
COMMAND, GAIT, LIN_VEL = slice(42, 45), slice(45, 49), slice(49, 52)


def random_actions(step, num_envs=4):
    draw = np.random.default_rng(step).uniform(-1.0, 1.0, (num_envs, 12))
    return draw.astype(np.float32)


def test_the_observation_vector_is_laid_out_as_published(build_go2):
    spec = build_go2().spec
    assert (spec.obs_width, spec.critic_obs_width, spec.action_width) == (49, 52, 12)
    layout = (
        ("gyro", 3),
        ("projected_gravity", 3),
        ("joint_pos", 12),
        ("joint_vel", 12),
        ("last_action", 12),
        ("command", 3),
        ("gait_phase", 4),
    )
    assert spec.obs_terms == layout
    assert spec.critic_obs_terms == (*layout, ("base_lin_vel", 3))
    assert (spec.ctrl_dt_s, spec.max_episode_steps) == (0.02, 1000)
    assert (spec.action_low, spec.action_high, spec.backend_device) == (None, None, None)
    assert spec.reward_terms == (
        "tracking_lin_vel",
        "tracking_ang_vel",
        "lin_vel_z",
        "ang_vel_xy",
        "base_height",
        "action_rate",
        "similar_to_default",
        "contact",
        "swing_feet_z",
    )
    assert spec.termination_terms == ("time_out", "bad_orientation", "base_too_low", "unstable")


def test_the_ppo_column_of_rewards(go2_config):
    weights = {name: term.weight for name, term in go2_config.rewards.items()}
    assert weights == {
        "tracking_lin_vel": 1.0,
        "tracking_ang_vel": 0.2,
        "lin_vel_z": -5.0,
        "ang_vel_xy": -0.1,
        "base_height": -100.0,
        "action_rate": -0.005,
        "similar_to_default": -0.1,
        "contact": 0.24,
        "swing_feet_z": 4.0,
    }
    assert go2_config.rewards["tracking_lin_vel"].params["sigma"] == 0.5
    assert go2_config.rewards["tracking_ang_vel"].params["sigma"] == 0.5


def test_observations_are_what_physics_says(build_go2):
    env = build_go2()
    env.reset()
    for step in range(5):
        actions = random_actions(step)
        result = env.step(actions)
    obs, backend = result.critic_obs, env.backend
    default = np.array([0.0, 0.8, -1.5, 0.0, 0.8, -1.5, 0.0, 1.0, -1.5, 0.0, 1.0, -1.5])
    np.testing.assert_allclose(obs[:, GYRO], backend.qvel[:, 3:6], atol=1e-6)
    np.testing.assert_allclose(obs[:, JOINT_POS], backend.qpos[:, 7:] - default, atol=1e-6)
    np.testing.assert_allclose(obs[:, JOINT_VEL], backend.qvel[:, 6:], atol=1e-5)
    np.testing.assert_array_equal(obs[:, ACTION], actions)
    np.testing.assert_array_equal(obs[:, COMMAND], env.commands.values["velocity"])
    # After 5 steps of .04 periods: sin(2 pi .2) = .951057 for FL and RR, minus that for FR, RL.
    expected = np.array([0.951057, -0.951057, -0.951057, 0.951057])
    np.testing.assert_allclose(obs[:, GAIT], np.tile(expected, (4, 1)), atol=1e-5)
    np.testing.assert_array_equal(obs[:, LIN_VEL], env.robot.lin_vel_b)
    np.testing.assert_array_equal(result.obs, obs[:, :49])


def test_targets_are_the_default_pose_plus_the_scaled_action(build_go2):
    env = build_go2()
    env.reset()
    actions = random_actions(0)
    actions[0] = 8.0  # PPO's actions are not clipped
    env.step(actions)
    default = np.array([0.0, 0.8, -1.5, 0.0, 0.8, -1.5, 0.0, 1.0, -1.5, 0.0, 1.0, -1.5])
    np.testing.assert_allclose(env.backend.ctrl, default + 0.25 * actions, atol=1e-6)


def test_clipped_actions_are_those_that_observations_and_rewards_see(build_go2):
    term = ActionTermConfig(function="joint_position", params={"scale": 0.4, "clip": [-1.0, 1.0]})
    env = build_go2(actions={"joint_position": term})
    assert env.spec.action_low == (-1.0,) * 12
    assert env.spec.action_high == (1.0,) * 12
    env.reset()
    result = env.step(np.full((4, 12), 3.0, np.float32))
    assert (result.obs[:, ACTION] == 1.0).all()
    assert env.backend.ctrl[0, 0] == pytest.approx(0.4)
    # All twelve actions went from 0 to 1: twelve times 1, times the weight.
    assert result.log["reward/action_rate"] == pytest.approx(12.0 * -0.005)


def test_episodes_start_as_published(build_go2):
    env = build_go2(num_envs=100)
    result = env.reset()
    qpos, qvel = env.backend.qpos, env.backend.qvel
    assert np.abs(qpos[:, :2]).max() <= 0.5
    assert (qpos[:, 2] == 0.32).all()
    assert 0.4 < np.abs(qvel[:, :6]).max() <= 0.5
    assert (result.obs[:, JOINT_POS] == 0.0).all()
    assert (result.obs[:, ACTION] == 0.0).all()
    commands = result.obs[:, COMMAND]
    assert (commands >= np.float32([-0.6, -0.4, -0.8])).all()
    assert (commands <= np.float32([1.0, 0.4, 0.8])).all()
    np.testing.assert_allclose(result.obs[:, GAIT], 0.0, atol=1e-6)
    np.testing.assert_allclose(result.obs[:, GYRO], qvel[:, 3:6], atol=1e-6)


def test_only_the_rows_that_ended_start_again(build_go2):
    env = build_go2()
    env.reset()
    for step in range(3):
        env.step(random_actions(step))
    env.backend.qpos[2, 3:7] = [0.0, 1.0, 0.0, 0.0]  # on its back
    last = random_actions(3)
    result = env.step(last)
    assert result.terminated.tolist() == [False, False, True, False]
    assert not result.truncated.any()
    assert result.log["Episode_Termination/bad_orientation"] == 1.0
    np.testing.assert_array_equal(result.final_obs[2, ACTION], last[2])
    assert result.final_obs[2, 5] > 0.5  # gravity points to its back
    assert (result.obs[2, ACTION] == 0.0).all()
    assert result.obs[2, 5] == pytest.approx(-1.0, abs=1e-6)
    np.testing.assert_array_equal(result.obs[[0, 1, 3], ACTION], last[[0, 1, 3]])
    # The next action rate of the new episode counts from zero, as its observation says.
    after = env.step(last)
    np.testing.assert_array_equal(after.obs[2, ACTION], last[2])
    rate = -0.005 * (np.square(last[2]).sum()) / 4
    assert after.log["reward/action_rate"] == pytest.approx(rate, rel=1e-4)


def test_a_low_base_ends_the_episode(build_go2):
    env = build_go2()
    env.reset()
    env.backend.qpos[0, 2] = 0.10
    env.backend.qpos[0, 7:] = [0.0, 2.5, -2.7] * 4  # legs folded: the feet hang free
    result = env.step(ZERO)
    assert result.terminated.tolist() == [True, False, False, False]
    assert result.log["Episode_Termination/base_too_low"] == 1.0


def test_broken_physics_ends_the_episode_with_finite_numbers(build_go2):
    env = build_go2()
    env.reset()
    env.step(random_actions(0))
    env.backend.qvel[1, 7] = np.nan
    result = env.step(random_actions(1))
    assert result.terminated.tolist() == [False, True, False, False]
    assert result.reward[1] == 0.0
    assert result.log["Episode_Termination/unstable"] == 1.0
    assert result.nonfinite == {"envs": 1, "total": 1}
    for values in (result.obs, result.critic_obs, result.reward):
        assert np.isfinite(values).all()
    assert np.isfinite(result.final_obs[1]).all()
    assert np.isfinite(list(result.log.values())).all()
    result = env.step(random_actions(2))
    assert not result.terminated.any()
    assert np.isfinite(result.obs).all()
    assert result.nonfinite == {"envs": 0, "total": 1}


def test_a_goal_that_changes_is_rewarded_only_after_it_was_seen(build_go2, go2_config):
    velocity = go2_config.commands["velocity"]
    every_step = dataclasses.replace(velocity, resampling_s=(0.02, 0.02))
    env = build_go2(commands={**go2_config.commands, "velocity": every_step})
    seen = env.reset().obs[:, COMMAND].copy()
    result = env.step(ZERO)
    assert (result.obs[:, COMMAND] != seen).any(axis=1).all()
    error = np.square(seen[:, :2] - env.robot.lin_vel_b[:, :2]).sum(axis=1)
    assert result.log["reward/tracking_lin_vel"] == pytest.approx(np.exp(-error / 0.5).mean())


def test_noise_changes_observations_but_not_physics(build_go2):
    plain, noisy = build_go2(seed=5), build_go2(seed=5, noise=True)
    plain.reset()
    noisy.reset()
    for step in range(3):
        clean, rough = plain.step(random_actions(step)), noisy.step(random_actions(step))
    difference = np.abs(rough.obs - clean.obs)
    assert 0.005 < difference[:, JOINT_POS].max() <= 0.01 + 1e-6
    assert 0.7 < difference[:, JOINT_VEL].max() <= 1.5 + 1e-5
    assert (difference[:, COMMAND] == 0.0).all()
    assert (difference[:, ACTION] == 0.0).all()
    # The critic of the benchmark sees no noise.
    np.testing.assert_array_equal(rough.critic_obs, clean.critic_obs)
    np.testing.assert_array_equal(rough.reward, clean.reward)


def test_reference_physics_runs_the_same_task(build_go2):
    env = build_go2(physics="reference")
    env.reset()
    for step in range(10):
        result = env.step(random_actions(step))
    assert np.isfinite(result.obs).all()
    assert not result.terminated.any()


def test_settings_that_do_not_fit_are_named(build_go2, go2_config):
    bad = CommandTermConfig(function="uniform_velocty")
    with pytest.raises(ValueError, match=r"env\.commands\.velocity.*uniform_velocity"):
        build_go2(commands={"velocity": bad})
    wrong = dataclasses.replace(go2_config.rewards["base_height"], params={})
    with pytest.raises(ValueError, match=r"env\.rewards\.base_height\.params\.target_m: missing"):
        build_go2(rewards={"base_height": wrong})
