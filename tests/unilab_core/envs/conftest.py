"""Settings of go2_joystick_flat, environments of it, and views with made-up states for terms."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from unilab_core.config.env import EnvConfig
from unilab_core.envs import make_env

ROOT = Path(__file__).resolve().parents[3]


def f32(values):
    return np.array(values, np.float32)


@pytest.fixture
def go2_config():
    text = (ROOT / "conf" / "env" / "go2_joystick_flat.yaml").read_text()
    return EnvConfig.from_dict(yaml.safe_load(text))


@pytest.fixture
def build_go2(go2_config):
    built = []

    def build(*, num_envs=4, seed=0, num_threads=1, spread_episodes=False, **changes):
        config = dataclasses.replace(go2_config, **changes)
        env = make_env(
            "go2_joystick_flat",
            "mujoco",
            config,
            num_envs=num_envs,
            seed=seed,
            num_threads=num_threads,
            spread_episodes=spread_episodes,
        )
        built.append(env)
        return env

    yield build
    for env in built:
        env.close()


@pytest.fixture
def view():
    """Two robots. Terms read attributes only, so that a namespace stands for a TermView."""
    return SimpleNamespace(
        num_envs=2,
        step_dt_s=0.02,
        max_episode_steps=1000,
        episode_steps=np.array([999, 1000]),
        action=f32([[0.5, 0.0], [0.0, 0.0]]),
        previous_action=f32([[0.2, -0.4], [0.0, 0.0]]),
        commands={
            "velocity": f32([[0.5, 0.0, 0.2], [0.0, 0.0, 0.0]]),
            "gait": f32([[0.0, 0.5, 0.6, 0.9], [0.7, 0.7, 0.7, 0.7]]),
        },
        robot=SimpleNamespace(
            lin_vel_b=f32([[0.3, 0.1, 0.2], [0.0, 0.0, 0.0]]),
            ang_vel_b=f32([[0.3, -0.4, 0.7], [0.0, 0.0, 0.0]]),
            gravity_b=f32([[0.0, 0.0, -1.0], [0.0, 0.9, -0.4359]]),
            base_height=f32([0.25, 0.119]),
            joint_pos_rel=f32([[0.1, -0.2], [0.0, 0.0]]),
            joint_vel=f32([[1.0, -2.0], [0.0, 0.0]]),
            foot_height=f32([[0.1, 0.1, 0.2, 0.1], [0.0, 0.1, 0.3, 0.05]]),
            foot_force=f32([[20.0, 0.0, 30.0, 0.0], [0.2, 0.1, 0.0, 0.05]]),
        ),
    )
