"""The environment behind its guard: what is not finite, or raises, stops here and gets a name.

    step --> values beyond use?  policy stop: dump, NonFiniteError (exit 12)
                                 policy drop_episode: dump, new episode, row made a placeholder
         --> exception?          raised on, or (max_env_exceptions) everything is reset and each row
                                 of the step is made a placeholder

A placeholder has `dropped` set: reward 0, cut by time, its last observation the one acted on. It
keeps the shapes; nobody learns from it, and the episode that it ends is not counted. Drops are
counted by source; more of them than `max_drop_frac` allows end the job.

Physics that broke (`StepResult.unstable`) ends its episode as terminated under either policy; with
drop_episode that transition is dropped, too. Legend: E environments.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import numpy as np

from unilab_collector.nan_dumps import NanDumps
from unilab_collector.state_history import StateHistory
from unilab_core.config.training import NanGuardConfig
from unilab_core.contracts import BoolArray, Env, EnvSpec, FloatArray, IdArray, StepResult
from unilab_core.run.failures import NonFiniteError, RunError

RATE_WINDOW_STEPS = 1000
"""Vector steps over which the share of dropped transitions is measured."""
PHYSICS, EXCEPTION = "physics", "exception"

log = logging.getLogger(__name__)


class GuardedEnv:
    """An `Env` around an `Env`.

    Attributes:
        dropped: transitions dropped so far, by source.
    """

    def __init__(
        self,
        env: Env,
        config: NanGuardConfig,
        *,
        dumps: NanDumps | None = None,
        max_exceptions: int = 0,
        on_drop: Callable[[str], None] = log.warning,
    ) -> None:
        self.spec: EnvSpec = env.spec
        self.timings_ns = env.timings_ns  # the environment's own table, refilled in every step
        self.dropped: dict[str, int] = {}
        self._env = env
        self._config = config
        self._dumps = dumps
        self._exceptions_left = max_exceptions
        self._on_drop = on_drop
        num_envs = env.spec.num_envs
        self._obs = np.zeros((num_envs, env.spec.obs_width), np.float32)
        self._critic_obs = np.zeros((num_envs, env.spec.critic_obs_width), np.float32)
        self._before = {"obs": self._obs, "critic_obs": self._critic_obs, **env.physics()}
        self._history: StateHistory | None = None
        if config.enabled and dumps is not None:
            self._history = StateHistory(config.buffer_size, self._before, env.spec.action_width)
        self._step = 0
        self._drop_steps: deque[tuple[int, int]] = deque()
        self._result: StepResult | None = None

    def reset(self) -> StepResult:
        """Start all episodes."""
        result = self._reset()
        result.dropped = None
        self._check_reset(result, np.arange(self.spec.num_envs))
        self._remember(result)
        return result

    def step(self, actions: FloatArray) -> StepResult:
        """Advance all environments by one control step."""
        if self._history is not None:
            self._history.begin(self._before, actions)
        try:
            result = self._env.step(actions)
        except NonFiniteError as error:  # an action: the policy is broken, nothing can be dropped
            env = 0 if error.env is None else error.env
            raise self._stop(error.source, error.kind, np.array([env])) from error
        except RunError:
            raise
        except Exception as error:  # noqa: BLE001 - terms are the user's code: whatever it raises
            result = self._survive(error)
        else:
            self._result = result
            result.dropped = None
            if self._history is not None:
                self._history.finish(result)
            if self._config.enabled:
                self._inspect(result)
        self._remember(result)
        self._step += 1
        return result

    def restart(self, ids: IdArray) -> None:
        """New episodes for these environments."""
        self._env.restart(ids)

    def physics(self) -> dict[str, np.ndarray]:
        """Live state of the physics."""
        return self._env.physics()

    def continue_from(self, num_steps: int) -> None:
        """Count control steps from here."""
        self._env.continue_from(num_steps)

    def close(self) -> None:
        """Free the physics."""
        self._env.close()

    # ---- what is not finite

    def _inspect(self, result: StepResult) -> None:
        found = self._find(result)
        if found is not None:
            source, kind, bad = found
            if self._config.policy == "stop":
                raise self._stop(source, kind, np.flatnonzero(bad))
            self._dump(source, kind, np.flatnonzero(bad))
            self._drop(result, source, kind, bad)
        unstable = result.unstable
        if unstable is not None:
            ids = np.flatnonzero(unstable)
            self._dump(PHYSICS, "unstable", ids)
            if self._config.policy == "drop_episode":
                self._mark(result, ids)
                self._count(PHYSICS, "unstable", ids)

    def _find(self, result: StepResult) -> tuple[str, str, BoolArray] | None:
        """The first source with values beyond use, what they are, and whose they are."""
        limit = self._config.max_abs_value
        for source, rows in (
            ("reward", result.reward),
            ("observation", result.obs),
            ("critic observation", result.critic_obs),
        ):
            bad = beyond_use(rows, limit)
            if bad is not None:
                return source, kind_of(rows[bad], limit), self._all_bad(result)
        done = result.terminated | result.truncated
        if not done.any():
            return None
        ids = np.flatnonzero(done)
        for rows in (result.final_obs, result.final_critic_obs):
            bad = beyond_use(rows[ids], limit)
            if bad is not None:
                mask = np.zeros(len(done), np.bool_)
                mask[ids[bad]] = True
                return "final observation", kind_of(rows[mask], limit), mask | self._all_bad(result)
        return None

    def _all_bad(self, result: StepResult) -> BoolArray:
        """Every environment with anything beyond use: one look may find several sources."""
        bad = np.zeros(self.spec.num_envs, np.bool_)
        for rows in (result.reward, result.obs, result.critic_obs):
            found = beyond_use(rows, self._config.max_abs_value)
            if found is not None:
                bad |= found
        return bad

    def _drop(self, result: StepResult, source: str, kind: str, bad: BoolArray) -> None:
        ids = np.flatnonzero(bad)
        self._count(source, kind, ids)
        self._env.restart(ids)
        self._check_reset(result, ids)
        self._mark(result, ids)
        result.reward[ids] = 0.0
        for key, value in result.log.items():
            if not np.isfinite(value):
                result.log[key] = 0.0

    def _mark(self, result: StepResult, ids: IdArray) -> None:
        """Turn these rows into placeholders."""
        if result.dropped is None:
            result.dropped = np.zeros(self.spec.num_envs, np.bool_)
        result.dropped[ids] = True
        result.reward[ids] = 0.0
        result.terminated[ids] = False
        result.truncated[ids] = True
        result.final_obs[ids] = self._obs[ids]
        result.final_critic_obs[ids] = self._critic_obs[ids]

    def _check_reset(self, result: StepResult, ids: IdArray) -> None:
        """A first observation that is not finite cannot be dropped: there is no episode yet."""
        if not self._config.enabled:
            return
        for rows in (result.obs, result.critic_obs):
            bad = beyond_use(rows[ids], self._config.max_abs_value)
            if bad is not None:
                kind = kind_of(rows[ids][bad], self._config.max_abs_value)
                raise self._stop("first observation", kind, ids[bad])

    def _count(self, source: str, kind: str, ids: IdArray) -> None:
        """Add to the totals; NonFiniteError once they come too fast."""
        self.dropped[source] = self.dropped.get(source, 0) + len(ids)
        window = self._drop_steps
        window.append((self._step, len(ids)))
        while window[0][0] <= self._step - RATE_WINDOW_STEPS:
            window.popleft()
        text = f"{source} {kind} env {ids[0]} step {self._step}"
        self._on_drop(f"dropped {len(ids)} of {self.spec.num_envs} transitions: {text}")
        recent = sum(count for _, count in window)
        allowed = self._config.max_drop_frac * RATE_WINDOW_STEPS * self.spec.num_envs
        if recent > max(allowed, 1.0):
            error = NonFiniteError(source, int(ids[0]), self._step, kind)
            error.add_detail(
                f"{recent} transitions dropped in {RATE_WINDOW_STEPS} steps, more than "
                f"training.nan_guard.max_drop_frac={self._config.max_drop_frac:g} allows"
            )
            raise error

    def _stop(self, source: str, kind: str, ids: IdArray) -> NonFiniteError:
        error = NonFiniteError(source, int(ids[0]), self._step, kind)
        path = self._dump(source, kind, ids)
        if path is not None:
            error.add_detail(f"last states: {path}")
        return error

    def _dump(self, source: str, kind: str, ids: IdArray) -> str | None:
        if self._dumps is None or self._history is None:
            return None
        result = self._result
        after = {} if result is None else {"obs": result.obs, "critic_obs": result.critic_obs}
        after |= self._env.physics()
        if result is not None and result.unstable is not None and result.broken:
            after |= result.broken
        return self._dumps.write(
            self._history, source=source, kind=kind, step=self._step, ids=ids, after=after
        )

    # ---- exceptions

    def _reset(self) -> StepResult:
        while True:
            try:
                result = self._env.reset()
            except RunError:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                self._note_exception(error)
            else:
                self._result = result
                return result

    def _survive(self, error: Exception) -> StepResult:
        """A new start for everybody in place of the step that raised."""
        self._note_exception(error)
        result = self._reset()
        self._check_reset(result, np.arange(self.spec.num_envs))
        result.unstable = None
        result.dropped = None
        ids = np.arange(self.spec.num_envs)
        self._mark(result, ids)
        self.dropped[EXCEPTION] = self.dropped.get(EXCEPTION, 0) + len(ids)
        for key in result.log:
            result.log[key] = 0.0
        return result

    def _note_exception(self, error: Exception) -> None:
        if self._exceptions_left == 0:
            raise error
        self._exceptions_left -= 1
        log.warning("the environment raised in step %d", self._step, exc_info=error)
        self._on_drop(
            f"all environments reset after {type(error).__name__} in step {self._step}; "
            f"{self._exceptions_left} more will be survived"
        )

    def _remember(self, result: StepResult) -> None:
        np.copyto(self._obs, result.obs)
        np.copyto(self._critic_obs, result.critic_obs)


def beyond_use(rows: np.ndarray, limit: float) -> BoolArray | None:
    """Rows of rows[N, ...] with NaN, infinity or a number beyond `limit`; None where all are good.

    One product on the good path: a sum of squares below limit squared proves every term.
    """
    flat = rows.ravel()
    with np.errstate(over="ignore"):
        total = float(np.dot(flat, flat))
    if total < limit * limit:
        return None
    good = np.abs(rows) <= limit  # false for NaN
    bad: BoolArray = np.logical_not(good.reshape(len(rows), -1).all(axis=1))
    return bad if bad.any() else None


def kind_of(values: np.ndarray, limit: float) -> str:
    """The first value beyond use, in words: NaN, inf, -inf or the number."""
    flat = values.ravel()
    first = float(flat[~(np.abs(flat) <= limit)][0])
    return "NaN" if np.isnan(first) else f"{first:g}"
