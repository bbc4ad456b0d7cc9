"""The vector tick over the inference slot: request, action, step, write, next request.

The transition goes into the replay ingress (SAC) or, with the next request, into the slot (PPO).

The learner infers; this loop steps the environments while the learner updates. A response carries
exactly one complete policy version, and ``closed`` in it ends the run after everything written
has been committed, so nothing is in flight afterwards.

SYNC POINT pairs (the other ends are in the learner):
    request:  ``CollectorPort.publish``  -> ``LearnerPort.try_request``
    response: ``LearnerPort.respond``    -> ``CollectorPort.try_response``
    row:      ``SlotProducer.commit``    -> ``SlotConsumer.try_acquire``
"""

from __future__ import annotations

from collections.abc import Callable

from unilab_collector.episode_stats import EpisodeStats
from unilab_collector.replay_feed import ReplayFeed
from unilab_collector.rollout_report import SlotRolloutReporter
from unilab_collector.segment_trace import SegmentTrace
from unilab_collector.step_feed import StepFeed
from unilab_collector.tick_report import (
    ACTION_WAIT,
    ENV_STEP,
    EXTRACT,
    PUBLISH,
    REQUEST,
    WRITE,
    TickReporter,
)
from unilab_core.contracts import Env, StepResult
from unilab_core.run.failures import EnvError, RunError
from unilab_ipc.heartbeat import RoleBeat
from unilab_ipc.inference_slot import CollectorPort, InferenceSlot
from unilab_ipc.waiting import Waiter


class SlotLoop:
    """Steps ``env`` with the learner's actions until the learner closes the slot.

    ``learner_ready`` is called once, when the first actions are here.
    """

    def __init__(
        self,
        *,
        env: Env,
        slot: InferenceSlot,
        port: CollectorPort,
        feed: ReplayFeed | StepFeed,
        stats: EpisodeStats,
        reporter: TickReporter | SlotRolloutReporter,
        waiter: Waiter,
        beat: RoleBeat,
        trace: SegmentTrace | None = None,
        learner_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._env = env
        self._learner_ready = learner_ready
        self._slot = slot
        self._port = port
        self._feed = feed
        self._stats = stats
        self._reporter = reporter
        self._trace = trace or SegmentTrace.silent()
        self._waiter = waiter
        self._beat = beat
        self._tick = -1

    def run(self) -> int:
        """Run to the learner's closing response; return the number of completed ticks.

        Raises:
            Closed: a stop without saving was requested.
            PeerDead: the learner or the launcher died.
            EnvError, NonFiniteError: the environment failed.
        """
        timer = self._reporter.timer
        result = self._reset()
        tick = 0
        timer.start_cycle()
        while True:
            self._request(tick, result)
            timer.lap(REQUEST)
            self._beat.phase("training/metrics_publish")
            self._reporter.publish_due(tick=tick - 1, env_steps=self._env_steps)
            self._trace.publish()
            timer.lap(PUBLISH)
            if not self._await_action(tick):
                self._reporter.publish_due(tick=tick - 1, env_steps=self._env_steps, force=True)
                self._trace.cancelled()
                return tick
            timer.lap(ACTION_WAIT)
            if tick == 0:
                self._learner_ready()
            result = self._step()
            self._trace.stepped()
            timer.lap(ENV_STEP)
            done = self._stats.add_tick(
                result.reward, result.terminated, result.truncated, result.dropped
            )
            self._stats.add_log(result.log)
            self._reporter.add_step_details(self._env.timings_ns)
            self._feed.extract(result, done)
            timer.lap(EXTRACT)
            self._beat.phase("training/replay_write", awaits="learner")
            self._feed.write(self._port.actions, result)
            timer.lap(WRITE)
            self._trace.took(self._port.actions, result)
            tick += 1
            self._beat.counts(tick, self._env_steps)
            timer.start_cycle()

    def seqs(self) -> dict[str, int]:
        """Newest sequence numbers of this side, for the error report."""
        return {"request_seq": self._tick, "ingress_seq": self._feed.ticks - 1}

    @property
    def _env_steps(self) -> int:
        return self._feed.ticks * self._env.spec.num_envs

    def _request(self, tick: int, result: StepResult) -> None:
        self._beat.phase("training/inference_request")
        self._tick = tick
        self._trace.opened()
        self._feed.remember(result.obs, result.critic_obs)
        port = self._port
        port.obs[...] = result.obs
        port.critic_obs[...] = result.critic_obs
        port.done[...] = result.terminated | result.truncated
        port.publish(tick)  # SYNC POINT: request
        self._trace.asked()
        self._reporter.note_flight(self._slot.flight())

    def _await_action(self, tick: int) -> bool:
        self._beat.phase("training/learner_action_wait", awaits="learner")
        response = self._waiter.wait(
            lambda: self._port.try_response(tick), timeout_s=None, awaits="learner"
        )  # SYNC POINT: response
        self._beat.advance()
        if not response.closed:
            self._trace.acted(response.policy_version)
        return not response.closed

    def _reset(self) -> StepResult:
        try:
            return self._env.reset()
        except RunError:
            raise
        except Exception as error:
            raise EnvError(f"reset: {type(error).__name__}: {error}") from error

    def _step(self) -> StepResult:
        self._beat.phase("training/env_step")
        try:
            return self._env.step(self._port.actions)
        except RunError:  # it names its owner already
            raise
        except Exception as error:  # terms are the user's code: whatever it raises
            raise EnvError(f"step {self._tick}: {type(error).__name__}: {error}") from error
