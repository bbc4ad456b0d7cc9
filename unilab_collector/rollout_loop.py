"""APPO's loop: claim a slot, take the newest weights, roll out T steps, commit, report.

    claim -> refresh -> [ infer -> env.step -> write ] x T -> observation T -> commit -> report

The collector acts on its own and never waits for an update, only for a free slot. A run ends when
the learner closes the ring; the rollout in progress is then given up, counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from unilab_collector.acting_policy import ActingPolicy
from unilab_collector.episode_stats import EpisodeStats
from unilab_collector.rollout_feed import RolloutFeed
from unilab_collector.rollout_report import RolloutReporter
from unilab_collector.segment_trace import SegmentTrace
from unilab_core.contracts import Env, StepResult
from unilab_core.run.failures import EnvError, RunError
from unilab_ipc.errors import Closed
from unilab_ipc.heartbeat import RoleBeat


class RolloutLoop:
    """Steps ``env`` with its own policy until the learner closes the ring."""

    def __init__(
        self,
        *,
        env: Env,
        policy: ActingPolicy,
        feed: RolloutFeed,
        stats: EpisodeStats,
        reporter: RolloutReporter,
        beat: RoleBeat,
        check: Callable[[], None],
        trace: SegmentTrace | None = None,
        learner_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._learner_ready = learner_ready
        self._env = env
        self._policy = policy
        self._feed = feed
        self._stats = stats
        self._reporter = reporter
        self._trace = trace or SegmentTrace.silent()
        self._beat = beat
        self._check = check
        self._tick = 0

    def run(self) -> int:
        """Run until the ring closes; return the number of committed rollouts.

        Raises:
            Closed: a stop without saving was requested.
            PeerDead: the learner or the launcher died.
            EnvError, NonFiniteError: the environment failed.
        """
        result = self._reset()
        while not self._feed.closed:
            try:
                result = self._rollout(result)
            except Closed:
                self._feed.give_up()
                self._trace.cancelled()
                if not self._feed.closed:
                    raise
        return self._feed.rollouts

    def seqs(self) -> dict[str, int]:
        """Newest sequence numbers of this side, for the error report."""
        return {
            "step": self._tick,
            "rollout_seq": self._feed.rollouts - 1,
            "policy_version": self._policy.version,
        }

    def _rollout(self, result: StepResult) -> StepResult:
        """One rollout from the observations in ``result``; the observations after it."""
        self._beat.phase("training/rollout_wait", awaits="learner")
        self._trace.opened()
        self._feed.claim()
        self._trace.dispatched()
        self._beat.phase("training/weight_fetch")
        self._policy.refresh()
        if self._tick == 0:
            self._learner_ready()
        self._beat.phase("training/rollout")
        start_ns = time.monotonic_ns()
        for t in range(self._feed.steps):
            self._check()
            self._feed.require_open()
            result = self._step(t, result)
        self._feed.finish(result, self._policy)
        end_ns = time.monotonic_ns()
        self._beat.phase("training/metrics_publish")
        env_steps = self._feed.env_steps
        self._reporter.publish(
            tick=self._tick - 1, env_steps=env_steps, start_ns=start_ns, end_ns=end_ns
        )
        self._trace.publish()
        self._beat.counts(self._feed.rollouts, env_steps)
        return result

    def _step(self, t: int, result: StepResult) -> StepResult:
        self._feed.put_obs(t, result)
        self._trace.asked()
        start_ns = time.monotonic_ns()
        actions, log_prob, mean = self._policy.act(result.obs)
        self._trace.acted(self._policy.version)
        acted_ns = time.monotonic_ns()
        try:
            result = self._env.step(actions)
        except RunError:
            raise
        except Exception as error:  # terms are the user's code: whatever it raises
            raise EnvError(f"step {self._tick}: {type(error).__name__}: {error}") from error
        end_ns = time.monotonic_ns()
        self._trace.stepped()
        self._feed.put_step(t, actions, log_prob, mean, result)
        self._trace.took(actions, result)
        self._stats.add_tick(result.reward, result.terminated, result.truncated, result.dropped)
        self._stats.add_log(result.log)
        self._reporter.add_step(start_ns, acted_ns, end_ns, self._env.timings_ns)
        self._tick += 1
        self._beat.advance()
        return result

    def _reset(self) -> StepResult:
        try:
            return self._env.reset()
        except RunError:
            raise
        except Exception as error:
            raise EnvError(f"reset: {type(error).__name__}: {error}") from error
