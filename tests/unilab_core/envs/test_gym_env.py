"""Gymnasium environments keep the contract of ours: ends, time limits, final observations."""

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from unilab_core.config.errors import ConfigError  # noqa: E402
from unilab_core.config.gym_env import GymEnvConfig, is_gym_task  # noqa: E402
from unilab_core.contracts import TIMING_KEYS, EnvSpec  # noqa: E402
from unilab_core.envs.gym_env import GymEnv  # noqa: E402
from unilab_core.run.failures import NonFiniteError  # noqa: E402


class Counter(gymnasium.Env):
    """Observation = (steps in this episode, episodes started); ends as its arguments say."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 2.0, (1, 2), np.float32)

    def __init__(self, end_at: int = 10**9, cut_at: int = 10**9) -> None:
        self.end_at, self.cut_at = end_at, cut_at
        self.steps = self.episodes = 0
        self.seen: list[np.ndarray] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.episodes = 0, self.episodes + 1
        return np.array([0.0, self.episodes]), {}

    def step(self, action):
        self.steps += 1
        self.seen.append(action)
        obs = np.array([self.steps, self.episodes], np.float64)
        return obs, float(self.steps), self.steps >= self.end_at, self.steps >= self.cut_at, {}


@pytest.fixture(autouse=True)
def registered():
    gymnasium.register(id="UnilabCounter-v0", entry_point=Counter)
    yield
    del gymnasium.registry["UnilabCounter-v0"]


def counter(num_envs=3, **kwargs):
    return GymEnv(
        "gym:UnilabCounter-v0", GymEnvConfig(make_kwargs=kwargs), num_envs=num_envs, seed=1
    )


def actions(env, value=0.0):
    return np.full((env.spec.num_envs, env.spec.action_width), value, np.float32)


def test_a_time_limit_resets_in_the_same_step_and_keeps_the_true_last_observation():
    env = counter(cut_at=2)
    env.reset()
    env.step(actions(env))
    result = env.step(actions(env))
    assert result.truncated.all()
    assert not result.terminated.any()
    assert result.final_obs.tolist() == [[2.0, 1.0]] * 3
    assert result.final_critic_obs.tolist() == [[2.0, 1.0]] * 3
    assert result.obs.tolist() == [[0.0, 2.0]] * 3  # first of the next episode
    assert result.reward.tolist() == [2.0] * 3
    assert result.log == {
        "Episode_Termination/terminated": 0.0,
        "Episode_Termination/time_out": 3.0,
    }


def test_terminated_and_truncated_at_once_counts_as_an_end():
    env = counter(end_at=1, cut_at=1)
    env.reset()
    result = env.step(actions(env))
    assert result.terminated.all()
    assert not result.truncated.any()


def test_the_time_limit_of_the_settings_replaces_the_registered_one():
    config = GymEnvConfig(max_episode_steps=3)
    env = GymEnv("gym:Pendulum-v1", config, num_envs=2, seed=1)
    assert env.spec.max_episode_steps == 3
    env.reset()
    cut = [env.step(actions(env)).truncated.copy() for _ in range(3)]
    assert [c.any() for c in cut] == [False, False, True]


def test_actions_are_shaped_and_clipped_to_the_action_space():
    env = counter(num_envs=1)
    env.reset()
    env.step(np.array([[-5.0, 5.0]], np.float32))
    seen = env._envs[0].unwrapped.seen[0]
    assert seen.tolist() == [[-1.0, 2.0]]
    assert (env.spec.action_low, env.spec.action_high) == ((-1.0, -1.0), (2.0, 2.0))


def test_bad_actions_are_named():
    env = counter(num_envs=2)
    env.reset()
    with pytest.raises(ValueError, match="actions"):
        env.step(np.zeros((2, 3), np.float32))
    with pytest.raises(NonFiniteError, match="env 1"):
        env.step(np.array([[0, 0], [0, np.nan]], np.float32))


def test_the_same_seed_gives_the_same_episodes_and_copies_differ():
    runs = []
    for _ in range(2):
        env = GymEnv("gym:Pendulum-v1", GymEnvConfig(max_episode_steps=4), num_envs=2, seed=3)
        rows = [env.reset().obs.copy()]
        rows += [env.step(actions(env, 0.5)).obs.copy() for _ in range(9)]
        runs.append(np.stack(rows))
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0][:, 0], runs[0][:, 1])


def test_spec_survives_json_and_names_every_log_key():
    env = counter()
    assert EnvSpec.from_json(env.spec.to_json()) == env.spec
    assert set(env.timings_ns) == set(TIMING_KEYS)
    env.reset()
    assert tuple(env.step(actions(env)).log) == env.spec.log_keys


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("gym:Pendulm-v1", "nearest: .*Pendulum"),
        ("gym:CartPole-v1", "not continuous"),
        ("gym:", "expected an id"),
    ],
)
def test_ids_that_cannot_work_are_one_line_errors(task, text):
    with pytest.raises(ConfigError, match=text) as caught:
        GymEnv(task, GymEnvConfig(), num_envs=1, seed=1)
    assert "\n" not in str(caught.value)


def test_settings_survive_a_round_trip_and_refuse_unknown_keys():
    config = GymEnvConfig(max_episode_steps=7, make_kwargs={"g": 9.81})
    assert GymEnvConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ConfigError, match=r"env\.max_steps"):
        GymEnvConfig.from_dict({"max_steps": 7})
    assert is_gym_task("gym:Pendulum-v1")
    assert not is_gym_task("go2_joystick_flat")
