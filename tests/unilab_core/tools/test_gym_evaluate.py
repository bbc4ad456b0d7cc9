"""Deterministic evaluation of gym tasks, and the suites that judge by it."""

import imageio.v2 as imageio
import numpy as np
import pytest

pytest.importorskip("gymnasium")

from unilab_core.config.compose import compose
from unilab_core.config.gym_env import GymEnvConfig
from unilab_core.tools.bench.learn import SUITES
from unilab_core.tools.gym_evaluate import evaluate_gym, play_gym_video


def test_doing_nothing_on_the_inverted_pendulum_is_worth_its_steps_until_the_fall():
    result = evaluate_gym(
        lambda obs: np.zeros((len(obs), 1), np.float32), "gym:InvertedPendulum-v5", GymEnvConfig()
    )
    assert result.episodes == 20
    assert 3.0 < result.mean_return < 500.0  # one per step it stays upright
    assert result.std_return > 0.0


def test_every_episode_counts_once_and_only_to_its_end():
    # Reward -cost per step; five steps, then the time limit: the sum is that of five steps.
    config = GymEnvConfig(max_episode_steps=5)
    seen = []

    def policy(obs):
        seen.append(obs.copy())
        return np.zeros((len(obs), 1), np.float32)

    result = evaluate_gym(policy, "gym:Pendulum-v1", config, episodes=3)
    assert len(seen) == 5
    assert result.mean_return > -5 * 16.28  # at most the worst cost of a step, five times


def test_a_film_of_several_environments_has_them_side_by_side(tmp_path):
    pytest.importorskip("pygame")
    target = tmp_path / "play.mp4"
    play_gym_video(
        lambda obs: np.zeros((len(obs), 1), np.float32),
        "gym:Pendulum-v1",
        GymEnvConfig(),
        target,
        num_steps=4,
        num_envs=3,
    )
    frames = imageio.mimread(target, memtest=False)
    assert len(frames) == 5
    assert frames[0].shape == (1000, 1000, 3)  # windows of 500 x 500 in two rows
    assert frames[0][500:, 500:].mean() < 20.0 < frames[0][:500, 500:].mean()  # three of four
    assert [path.name for path in tmp_path.iterdir()] == ["play.mp4"]


@pytest.mark.parametrize("rung", SUITES["ci"], ids=lambda rung: f"{rung.algo}-{rung.task}")
def test_the_steps_of_a_rung_are_those_of_its_settings(rung):
    algo = compose(rung.algo, rung.task, environ={"CUDA_VISIBLE_DEVICES": ""}).algo
    if rung.algo in ("sac", "flashsac"):
        assert algo.max_iterations * algo.num_envs == rung.env_steps
    else:
        assert algo.max_iterations * algo.num_envs * algo.rollout_steps == rung.env_steps
