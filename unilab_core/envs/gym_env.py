"""Environments of Gymnasium behind the contract of `unilab_core.contracts`.

E copies are stepped one after the other in this process, then the ended ones are reset within the
same step, so the observation that a time limit cut off is still at hand as `final_obs`. Actions are
clipped to the action space, which the policy of PPO does not know. Both observation groups are the
same flat vector; rewards are the environment's own.

Legend: E environments, O observation width, A action width.
"""

import warnings
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from unilab_core.config.errors import ConfigError, unknown_name
from unilab_core.config.gym_env import SIM, GymEnvConfig, gym_id
from unilab_core.contracts import (
    TIMING_KEYS,
    EnvSpec,
    FloatArray,
    IdArray,
    PhysicsArray,
    StepResult,
)
from unilab_core.run.failures import NonFiniteError

TERMINATED, TIME_OUT = "terminated", "time_out"
LOG_KEYS = (f"Episode_Termination/{TERMINATED}", f"Episode_Termination/{TIME_OUT}")
DEFAULT_DT_S = 1.0
"""Length of a control step where the environment does not say."""


class GymEnv:
    """E copies of one environment.

    Args:
        task: `gym:<id>`.
        config: time limit and arguments of `gymnasium.make`.
        num_envs: E.
        seed: environment i is seeded with this plus i.
    """

    def __init__(self, task: str, config: GymEnvConfig, *, num_envs: int, seed: int) -> None:
        self._envs = [_make(task, config) for _ in range(num_envs)]
        self._seeds: list[int | None] = [seed + index for index in range(num_envs)]
        first = self._envs[0]
        self._flatten = _flattener(task, first.observation_space)
        box = _action_box(task, first.action_space)
        self._action_shape = box.shape
        self._low, self._high = box.low.ravel(), box.high.ravel()
        self._actions = np.zeros((num_envs, self._low.size), box.dtype)
        self.spec = self._make_spec(task, config)
        self.timings_ns: dict[str, int] = dict.fromkeys(TIMING_KEYS, 0)
        self._result = self._empty_result()
        self._num_steps = 0

    def reset(self) -> StepResult:
        """Start all episodes."""
        result = self._result
        for index in range(len(self._envs)):
            self._restart(index)
        for values in (result.reward, result.terminated, result.truncated):
            values.fill(0)
        return result

    def step(self, actions: FloatArray) -> StepResult:
        """Advance all environments by one control step; `actions` is [E, A]."""
        start = perf_counter_ns()
        self._validate(actions)
        validated = perf_counter_ns()
        np.clip(actions, self._low, self._high, out=self._actions, casting="same_kind")
        clipped = perf_counter_ns()
        self._advance()
        stepped = perf_counter_ns()
        self._reset_done()
        finished = perf_counter_ns()
        self._num_steps += 1
        timings = self.timings_ns
        timings["action_validate"] = validated - start
        timings["apply_action"] = clipped - validated
        timings["backend"] = stepped - clipped
        timings["reset_done"] = finished - stepped
        return self._result

    def restart(self, ids: IdArray) -> None:
        """Begin new episodes for these environments, between two steps."""
        for index in ids.tolist():
            self._restart(index)

    def physics(self) -> dict[str, PhysicsArray]:
        """Nothing: Gymnasium has no common way to read it."""
        return {}

    def continue_from(self, num_steps: int) -> None:
        """Count control steps from here; nothing but error messages shows it."""
        self._num_steps = num_steps

    def close(self) -> None:
        """Close every copy."""
        for env in self._envs:
            env.close()

    def _validate(self, actions: FloatArray) -> None:
        if actions.shape != self._actions.shape:
            raise ValueError(f"actions: got {actions.shape}, expected {self._actions.shape}")
        finite = np.isfinite(actions).all(axis=1)
        if not finite.all():
            raise NonFiniteError(source="action", env=int(np.argmin(finite)), step=self._num_steps)

    def _advance(self) -> None:
        result = self._result
        for index, env in enumerate(self._envs):
            action = self._actions[index].reshape(self._action_shape)
            obs, reward, terminated, truncated, _ = env.step(action)
            result.obs[index] = self._flatten(obs)
            result.reward[index] = reward
            result.terminated[index] = terminated
            # Both at once is an end: there is no future to bootstrap from.
            result.truncated[index] = truncated and not terminated
        np.copyto(result.critic_obs, result.obs)

    def _reset_done(self) -> None:
        result = self._result
        ids = np.flatnonzero(result.terminated | result.truncated)
        result.final_obs[ids] = result.obs[ids]
        result.final_critic_obs[ids] = result.obs[ids]
        for index in ids.tolist():
            self._restart(index)
        result.log[LOG_KEYS[0]] = float(np.count_nonzero(result.terminated))
        result.log[LOG_KEYS[1]] = float(np.count_nonzero(result.truncated))

    def _restart(self, index: int) -> None:
        obs, _ = self._envs[index].reset(seed=self._seeds[index])
        self._seeds[index] = None  # only the first reset is seeded; the copy goes on by itself
        self._result.obs[index] = self._flatten(obs)
        self._result.critic_obs[index] = self._result.obs[index]

    def _make_spec(self, task: str, config: GymEnvConfig) -> EnvSpec:
        first = self._envs[0]
        width = int(spaces.flatdim(first.observation_space))
        registered = first.spec.max_episode_steps if first.spec is not None else None
        bounded = bool(np.isfinite(self._low).all() and np.isfinite(self._high).all())
        return EnvSpec(
            task=task,
            sim=SIM,
            num_envs=len(self._envs),
            obs_width=width,
            critic_obs_width=width,
            action_width=self._low.size,
            action_low=tuple(self._low.tolist()) if bounded else None,
            action_high=tuple(self._high.tolist()) if bounded else None,
            obs_terms=(("observation", width),),
            critic_obs_terms=(("observation", width),),
            reward_terms=(),
            termination_terms=(TERMINATED, TIME_OUT),
            log_keys=LOG_KEYS,
            # Foreign object: only some environments say how long their step is.
            ctrl_dt_s=float(getattr(first.unwrapped, "dt", DEFAULT_DT_S)),
            max_episode_steps=config.max_episode_steps or registered or 0,
            backend_device=None,
        )

    def _empty_result(self) -> StepResult:
        envs, width = self.spec.num_envs, self.spec.obs_width
        return StepResult(
            obs=np.zeros((envs, width), np.float32),
            critic_obs=np.zeros((envs, width), np.float32),
            reward=np.zeros(envs, np.float32),
            terminated=np.zeros(envs, np.bool_),
            truncated=np.zeros(envs, np.bool_),
            final_obs=np.zeros((envs, width), np.float32),
            final_critic_obs=np.zeros((envs, width), np.float32),
            log=dict.fromkeys(LOG_KEYS, 0.0),
            nonfinite={"envs": 0, "total": 0},
        )


def _make(task: str, config: GymEnvConfig) -> gymnasium.Env:
    name = gym_id(task)
    try:
        with warnings.catch_warnings():
            # "Out of date" warnings: an old version is chosen on purpose, to compare with its
            # published scores.
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("ignore", message=".*out of date.*")
            return gymnasium.make(
                name,
                max_episode_steps=config.max_episode_steps,
                disable_env_checker=True,
                **config.make_kwargs,
            )
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.NamespaceNotFound):
        raise unknown_name("gymnasium id", name, gymnasium.registry) from None
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ConfigError(f"--task {task}: {str(error).splitlines()[0]}") from None


def _flattener(task: str, space: spaces.Space) -> Callable[[Any], FloatArray]:
    if not space.is_np_flattenable:
        raise ConfigError(f"--task {task}: observations {space} are not a vector of fixed length")
    if isinstance(space, spaces.Box):
        return lambda obs: np.asarray(obs, np.float32).reshape(-1)
    return lambda obs: np.asarray(spaces.flatten(space, obs), np.float32)


def _action_box(task: str, space: spaces.Space) -> spaces.Box:
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise ConfigError(f"--task {task}: actions {space} are not continuous")
    return space
