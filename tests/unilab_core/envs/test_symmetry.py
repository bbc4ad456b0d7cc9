"""The mirror image of go2_joystick_flat is a symmetry of the simulated robot itself."""

from __future__ import annotations

import numpy as np
import pytest

from unilab_core.config.compose import compose
from unilab_core.contracts import EnvSpec
from unilab_core.envs import make_env


def mirrored(image, rows):
    return rows[:, list(image.index)] * np.asarray(image.sign, np.float32)


@pytest.fixture
def env():
    # Randomised gains would make the two sides unlike each other.
    overrides = ["env.events.pd_gains=null", "env.events.reset_base=null"]
    config = compose("sac", "go2_joystick_flat", "mujoco", overrides)
    env = make_env(
        "go2_joystick_flat",
        "mujoco",
        config.env,
        num_envs=2,
        seed=3,
        num_threads=1,
        spread_episodes=False,
    )
    yield env
    env.close()


def test_mirroring_twice_gives_the_same_vector(env):
    symmetry = env.spec.symmetry
    rows = np.random.default_rng(0).normal(size=(4, env.spec.critic_obs_width)).astype(np.float32)
    again = mirrored(symmetry.critic_obs, mirrored(symmetry.critic_obs, rows))
    np.testing.assert_array_equal(again, rows)


def test_mirrored_actions_lead_to_mirrored_observations(env):
    symmetry = env.spec.symmetry
    env.commands.terms["velocity"].hold(np.array([[0.5, 0.3, 0.4], [0.5, -0.3, -0.4]], np.float32))
    # The clock starts with the left front foot: half a period later the sides have changed roles.
    env.reset()
    rng = np.random.default_rng(1)
    for _ in range(10):
        one = rng.uniform(-0.5, 0.5, (1, env.spec.action_width)).astype(np.float32)
        result = env.step(np.concatenate([one, mirrored(symmetry.action, one)]))
        left = mirrored(symmetry.critic_obs, result.critic_obs[:1])
        gait = slice(-7, -3)  # the clock is not mirrored by acting differently
        np.testing.assert_allclose(
            np.delete(left, np.r_[gait], axis=1),
            np.delete(result.critic_obs[1:], np.r_[gait], axis=1),
            atol=1e-2,  # the published inertias of the two sides differ a little
        )
    assert not result.terminated.any()


def test_the_symmetry_survives_the_way_through_json(env):
    import json

    again = EnvSpec.from_json(json.loads(json.dumps(env.spec.to_json())))
    assert again == env.spec
