"""ObservationManager: order of the alterations, histories, and the critic's share."""

import numpy as np
import pytest

from unilab_core.config.env import ObservationTermConfig
from unilab_core.envs.managers.observation import ObservationManager


def manager_of(view, policy, critic=None, noise=False, seed=0):
    groups = {"policy": policy} if critic is None else {"policy": policy, "critic": critic}
    return ObservationManager(groups, noise=noise, rng=np.random.default_rng(seed), view=view)


def compute(manager, view):
    obs = np.zeros((2, manager.policy_width), np.float32)
    critic_obs = np.zeros((2, manager.critic_width), np.float32)
    manager.compute(view, obs, critic_obs)
    return obs, critic_obs


def term(function, **settings):
    return ObservationTermConfig(function=function, **settings)


def test_terms_follow_each_other_in_the_order_of_the_configuration(view):
    manager = manager_of(view, {"a": term("joint_vel"), "b": term("base_ang_vel")})
    obs, _ = compute(manager, view)
    assert manager.policy_terms == (("a", 2), ("b", 3))
    assert obs[0] == pytest.approx([1.0, -2.0, 0.3, -0.4, 0.7])


def test_clip_comes_before_scale(view):
    # -2 is clipped to -1.5 and then halved; scaling first would give -1.
    manager = manager_of(view, {"a": term("joint_vel", clip=(-1.5, 1.5), scale=0.5)})
    obs, _ = compute(manager, view)
    assert obs[0] == pytest.approx([0.5, -0.75])


def test_noise_comes_before_clip_and_stays_within_its_width(view):
    wide = {"a": term("joint_vel", noise=0.5)}
    draws = np.array(
        [compute(manager_of(view, wide, noise=True, seed=s), view)[0] for s in range(99)]
    )
    deviation = draws[:, 0] - [1.0, -2.0]
    assert (np.abs(deviation) <= 0.5).all()
    assert deviation.min() < -0.4
    assert deviation.max() > 0.4
    clipped = {"a": term("joint_vel", noise=0.5, clip=(-2.0, 1.0))}
    obs, _ = compute(manager_of(view, clipped, noise=True), view)
    assert (obs >= -2.0).all()
    assert (obs <= 1.0).all()


def test_noise_is_off_unless_asked_for(view):
    obs, _ = compute(manager_of(view, {"a": term("joint_vel", noise=0.5)}), view)
    assert obs[0].tolist() == [1.0, -2.0]


def test_the_critic_takes_over_leading_terms_and_adds_its_own(view):
    shared = {"a": term("joint_vel"), "b": term("base_ang_vel")}
    manager = manager_of(view, shared, {**shared, "c": term("base_lin_vel")})
    obs, critic_obs = compute(manager, view)
    np.testing.assert_array_equal(critic_obs[:, :5], obs)
    assert critic_obs[0, 5:] == pytest.approx([0.3, 0.1, 0.2])
    assert manager.critic_terms == (("a", 2), ("b", 3), ("c", 3))


def test_a_critic_term_with_other_settings_is_computed_apart(view):
    policy = {"a": term("joint_vel", scale=0.5), "b": term("base_ang_vel")}
    critic = {"a": term("joint_vel"), "b": term("base_ang_vel")}
    obs, critic_obs = compute(manager_of(view, policy, critic), view)
    assert obs[0, :2] == pytest.approx([0.5, -1.0])
    assert critic_obs[0, :2] == pytest.approx([1.0, -2.0])
    np.testing.assert_array_equal(obs[:, 2:], critic_obs[:, 2:])


def test_noise_of_the_critic_is_drawn_apart(view):
    terms = {"a": term("joint_vel", noise=0.5)}
    obs, critic_obs = compute(manager_of(view, terms, terms, noise=True), view)
    assert (obs != critic_obs).all()


def test_without_a_critic_group_the_critic_sees_the_policys_observations(view):
    obs, critic_obs = compute(manager_of(view, {"a": term("joint_vel")}), view)
    np.testing.assert_array_equal(obs, critic_obs)


def test_history_stacks_frames_oldest_first_and_restarts_with_the_episode(view):
    manager = manager_of(view, {"a": term("joint_vel", history=3)})
    assert manager.policy_width == 6
    obs = np.zeros((2, 6), np.float32)
    both = np.array([0, 1])
    manager.compute_rows(view, both, obs, obs.copy())
    assert obs[0].tolist() == [1.0, -2.0, 1.0, -2.0, 1.0, -2.0]
    for value in (3.0, 4.0):
        view.robot.joint_vel[0] = [value, value]
        obs, _ = compute(manager, view)
    assert obs[0].tolist() == [1.0, -2.0, 3.0, 3.0, 4.0, 4.0]
    manager.compute_rows(view, both, obs, obs.copy())
    assert obs[0].tolist() == [4.0] * 6


def test_a_term_of_the_wrong_shape_is_named(view):
    view.robot.joint_vel = np.zeros((3, 2), np.float32)
    with pytest.raises(ValueError, match=r"env\.observations\.policy\.a: got shape \(3, 2\)"):
        manager_of(view, {"a": term("joint_vel")})
