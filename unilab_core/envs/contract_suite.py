"""EnvContract: what every environment must pass, on every backend.

Subclass it in a test module, give it a `build` fixture and pytest collects its methods:

    class TestMyEnv(EnvContract):
        @pytest.fixture
        def build(self):
            return lambda **changes: make_my_env(**changes)

`build(num_envs=, seed=, num_threads=, episode_length_s=, spread_episodes=)` returns a new `Env`;
every argument is optional. Physics must be deterministic for a seed.
"""

# ruff: noqa: D102  (the names of the methods say what they check)

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from unilab_core.contracts import TIMING_KEYS, Env, EnvSpec, FloatArray, StepResult

Build = Callable[..., Env]
NUM_ENVS = 6


class EnvContract:
    """See the module docstring."""

    def test_arrays_have_the_shapes_and_types_of_the_spec(self, build: Build) -> None:
        env = build(num_envs=NUM_ENVS)
        spec = env.spec
        for result in (env.reset(), env.step(_random_actions(spec, 0))):
            assert result.obs.shape == result.final_obs.shape == (NUM_ENVS, spec.obs_width)
            assert result.critic_obs.shape == (NUM_ENVS, spec.critic_obs_width)
            assert result.final_critic_obs.shape == (NUM_ENVS, spec.critic_obs_width)
            for values in (result.obs, result.critic_obs, result.reward):
                assert values.dtype == np.float32
                assert values.flags.c_contiguous
            for mask in (result.terminated, result.truncated):
                assert mask.dtype == np.bool_
                assert mask.shape == (NUM_ENVS,)
        env.close()

    def test_spec_adds_up_and_survives_json(self, build: Build) -> None:
        env = build(num_envs=NUM_ENVS)
        spec = env.spec
        assert sum(width for _, width in spec.obs_terms) == spec.obs_width
        assert sum(width for _, width in spec.critic_obs_terms) == spec.critic_obs_width
        assert EnvSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
        for bound in (spec.action_low, spec.action_high):
            assert bound is None or len(bound) == spec.action_width
        env.close()

    def test_log_has_exactly_the_keys_of_the_spec(self, build: Build) -> None:
        env = build(num_envs=NUM_ENVS)
        env.reset()
        result = env.step(_random_actions(env.spec, 0))
        assert tuple(result.log) == env.spec.log_keys
        rewards = {f"reward/{name}" for name in env.spec.reward_terms}
        ends = {f"Episode_Termination/{name}" for name in env.spec.termination_terms}
        assert set(result.log) == rewards | ends
        assert all(np.isfinite(value) for value in result.log.values())
        env.close()

    def test_reward_is_the_sum_of_the_logged_terms_times_dt(self, build: Build) -> None:
        env = build(num_envs=NUM_ENVS)
        env.reset()
        for step in range(5):
            result = env.step(_random_actions(env.spec, step))
            total = sum(result.log[f"reward/{name}"] for name in env.spec.reward_terms)
            expected = total * env.spec.ctrl_dt_s
            assert np.isclose(result.reward.mean(), expected, rtol=1e-4, atol=1e-6)
        env.close()

    def test_everything_stays_finite_under_random_actions(self, build: Build) -> None:
        env = build(num_envs=NUM_ENVS)
        env.reset()
        for step in range(100):
            result = env.step(3.0 * _random_actions(env.spec, step))
            for values in (result.obs, result.critic_obs, result.reward):
                assert np.isfinite(values).all()
        env.close()

    def test_an_episode_ends_as_terminated_or_truncated_never_both(self, build: Build) -> None:
        env = build(num_envs=NUM_ENVS, episode_length_s=0.5)
        env.reset()
        ended = 0
        for step in range(60):
            result = env.step(3.0 * _random_actions(env.spec, step))
            assert not (result.terminated & result.truncated).any()
            counted = sum(
                result.log[f"Episode_Termination/{name}"] for name in env.spec.termination_terms
            )
            done = int((result.terminated | result.truncated).sum())
            # An episode may have several reasons at once, but never none.
            assert counted >= done
            ended += done
        assert ended >= NUM_ENVS
        env.close()

    def test_calm_episodes_are_truncated_after_exactly_their_length(self, build: Build) -> None:
        env = build(num_envs=NUM_ENVS, episode_length_s=0.2, spread_episodes=False)
        steps = env.spec.max_episode_steps
        env.reset()
        for step in range(1, 2 * steps + 1):
            result = env.step(_no_actions(env.spec))
            assert not result.terminated.any()
            assert result.truncated.all() == (step % steps == 0)
            assert result.truncated.any() == (step % steps == 0)
        env.close()

    def test_first_episodes_are_spread_over_the_whole_length(self, build: Build) -> None:
        env = build(num_envs=32, episode_length_s=0.4, spread_episodes=True)
        steps = env.spec.max_episode_steps
        env.reset()
        ends = [int(env.step(_no_actions(env.spec)).truncated.sum()) for _ in range(steps)]
        assert sum(ends) == 32
        assert max(ends) < 16
        assert sum(ends[: steps // 2]) > 0
        assert sum(ends[steps // 2 :]) > 0
        env.close()

    def test_final_observations_are_the_true_last_ones(self, build: Build) -> None:
        """A twin whose episode goes on sees as `obs` what the ending one reports as final."""
        length_s = 10 * build(num_envs=1).spec.ctrl_dt_s
        ending = build(num_envs=NUM_ENVS, episode_length_s=length_s, spread_episodes=False)
        going_on = build(num_envs=NUM_ENVS, episode_length_s=3 * length_s, spread_episodes=False)
        ending.reset()
        going_on.reset()
        for step in range(10):
            actions = _random_actions(ending.spec, step)
            short, long = ending.step(actions), going_on.step(actions)
        assert short.truncated.all()
        assert not long.truncated.any()
        np.testing.assert_array_equal(short.final_obs, long.obs)
        np.testing.assert_array_equal(short.final_critic_obs, long.critic_obs)
        np.testing.assert_array_equal(short.reward, long.reward)
        assert (short.obs != long.obs).any()
        ending.close()
        going_on.close()

    def test_same_seed_same_numbers_whatever_the_threads(self, build: Build) -> None:
        first = _trajectory(build(num_envs=NUM_ENVS, seed=3, num_threads=1))
        again = _trajectory(build(num_envs=NUM_ENVS, seed=3, num_threads=1))
        threaded = _trajectory(build(num_envs=NUM_ENVS, seed=3, num_threads=2))
        other = _trajectory(build(num_envs=NUM_ENVS, seed=4, num_threads=1))
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(first, threaded)
        assert (first != other).any()

    def test_bad_actions_are_refused_and_good_ones_left_alone(self, build: Build) -> None:
        env = build(num_envs=NUM_ENVS)
        env.reset()
        with _refused("shape"):
            env.step(np.zeros((NUM_ENVS, env.spec.action_width + 1), np.float32))
        for bad in (np.nan, np.inf):
            actions = _no_actions(env.spec)
            actions[2, 0] = bad
            with _refused("env 2"):
                env.step(actions)
        actions = np.full((NUM_ENVS, env.spec.action_width), 5.0, np.float32)
        env.step(actions)
        assert (actions == 5.0).all()
        env.close()

    def test_timings_cover_the_step(self, build: Build) -> None:
        env = build(num_envs=NUM_ENVS)
        env.reset()
        env.step(_no_actions(env.spec))
        assert tuple(env.timings_ns) == TIMING_KEYS
        assert all(value >= 0 for value in env.timings_ns.values())
        assert env.timings_ns["backend"] > 0
        env.close()

    def test_result_is_reused(self, build: Build) -> None:
        env = build(num_envs=NUM_ENVS)
        first = env.reset()
        before = first.obs.copy()
        second = env.step(_random_actions(env.spec, 0))
        assert second.obs is first.obs
        assert (first.obs != before).any()
        env.close()


def _random_actions(spec: EnvSpec, seed: int) -> FloatArray:
    draw = np.random.default_rng(seed).uniform(-1.0, 1.0, (spec.num_envs, spec.action_width))
    return draw.astype(np.float32)


def _no_actions(spec: EnvSpec) -> FloatArray:
    return np.zeros((spec.num_envs, spec.action_width), np.float32)


def _trajectory(env: Env) -> FloatArray:
    """Everything that 30 random steps return, in one vector."""
    parts = [_flat(env.reset())]
    parts.extend(_flat(env.step(2.0 * _random_actions(env.spec, step))) for step in range(30))
    env.close()
    return np.concatenate(parts)


def _flat(result: StepResult) -> FloatArray:
    ends = np.concatenate([result.terminated, result.truncated]).astype(np.float32)
    return np.concatenate([result.critic_obs.ravel(), result.obs.ravel(), result.reward, ends])


@contextmanager
def _refused(message: str) -> Iterator[None]:
    """The block must raise an error whose text has `message`."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        raised = str(error)
    else:
        raised = "nothing was raised"
    if message not in raised:
        raise AssertionError(f"expected an error with {message!r}, got: {raised}")
