"""go2_joystick_flat is frozen: speed never comes from an easier task.

The stored file was written by make_golden.py. `terms_*` freezes observations and rewards as
functions of a stored state, to rounding; `fast_*` and `reference_*` freeze what physics does in the
first .24 s of an episode, with room for what another compiler does to a contact.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

_spec = importlib.util.spec_from_file_location(
    "make_golden", Path(__file__).with_name("make_golden.py")
)
make_golden = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_golden)


@pytest.fixture(scope="module")
def golden():
    with np.load(make_golden.GOLDEN) as arrays:
        return dict(arrays)


def test_terms_are_unchanged_functions_of_the_state(golden):
    env = make_golden.build()
    env.reset()
    names = ("qpos", "qvel", "command", "gait", "action", "previous_action")
    state = {name: golden[f"terms_{name}"] for name in names}
    outputs = make_golden.evaluate_terms(env, state)
    for name, values in outputs.items():
        np.testing.assert_allclose(values, golden[f"terms_{name}"], rtol=1e-4, atol=1e-5)
    env.close()


def test_published_rewards_follow_from_the_stored_state_by_hand(golden):
    """The PPO column written out once more, in plain arithmetic on the stored sensors."""
    sensors, qpos = golden["terms_sensordata"], golden["terms_qpos"]
    gyro, velocity = sensors[:, 0:3], sensors[:, 6:9]
    feet_z, touch = sensors[:, 9:21].reshape(-1, 4, 3)[:, :, 2], sensors[:, 21:25]
    command, phase = golden["terms_command"], golden["terms_gait"]
    change = golden["terms_action"] - golden["terms_previous_action"]
    default = np.array([0.0, 0.8, -1.5, 0.0, 0.8, -1.5, 0.0, 1.0, -1.5, 0.0, 1.0, -1.5])
    swing = phase >= 0.6
    terms = np.array(
        [
            1.0 * np.exp(-((command[:, :2] - velocity[:, :2]) ** 2).sum(axis=1) / 0.5),
            0.2 * np.exp(-((command[:, 2] - gyro[:, 2]) ** 2) / 0.5),
            -5.0 * velocity[:, 2] ** 2,
            -0.1 * (gyro[:, 0] ** 2 + gyro[:, 1] ** 2),
            -100.0 * (qpos[:, 2] - 0.3) ** 2,
            -0.005 * (change**2).sum(axis=1),
            -0.1 * np.abs(qpos[:, 7:] - default).sum(axis=1),
            0.24 * ((touch > 0.1) == ~swing).mean(axis=1),
            4.0 * (swing * np.exp(-((feet_z - 0.1) ** 2) / 0.01)).mean(axis=1),
        ]
    )
    np.testing.assert_allclose(terms.mean(axis=1), golden["terms_reward_terms"], atol=1e-4)
    np.testing.assert_allclose(0.02 * terms.sum(axis=0), golden["terms_reward"], atol=1e-5)


@pytest.mark.parametrize("physics", ["fast", "reference"])
def test_the_first_steps_of_an_episode_are_unchanged(golden, physics):
    observations, rewards = make_golden.rollout(physics)
    np.testing.assert_allclose(observations, golden[f"{physics}_critic_obs"], atol=2e-3)
    np.testing.assert_allclose(rewards, golden[f"{physics}_reward"], atol=2e-4)


def test_the_stored_file_exercises_every_term(golden):
    assert (np.abs(golden["terms_reward_terms"]) > 1e-4).all()
    assert golden["fast_critic_obs"].shape == (13, 6, 52)
    assert (golden["fast_critic_obs"] != golden["reference_critic_obs"]).any()
