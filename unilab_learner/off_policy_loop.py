"""The learner's main loop for SAC-like algorithms: serve one tick, then update, side by side.

    collector   request(t) | ......wait...... | step(t), replay write(t), request(t+1) | ...wait...
    learner     wait       | inference | free | drain + gather | sample | update k     | wait
                           Inference   Collector Release  Replay Batch Wait  ...  Learning

An iteration serves `env_steps_per_sync` requests and runs `updates_per_step` updates. Its phases
are exclusive laps of one timer (Collector Wait, Inference, Collector Release, Replay Batch Wait,
Replay Sample, Learning); logging and saving are the rest, Other. While it waits for a request the
ingress is drained, so that the two rings can never wait for each other.

States: warm-up (random actions, no updates) -> training -> closing (the slot answers `closed`, the
ingress is emptied). Ends after `max_iterations`, after `max_wall_time_s`, or by a stop: level 1
finishes the iteration and saves, level 2 leaves through `Closed`, raised by a wait.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from unilab_core.config.config import Config
from unilab_core.config.training import NanGuardConfig
from unilab_core.run.failures import NonFiniteError
from unilab_core.telemetry.phase_timer import NS_PER_MS, PhaseTimer
from unilab_core.telemetry.training_logger import IterationSample, TrainingLogger
from unilab_ipc.errors import Closed
from unilab_ipc.heartbeat import STOP_NOW, STOP_SAVE, RoleBeat
from unilab_ipc.metric_queue import RingReader
from unilab_ipc.waiting import Waiter
from unilab_learner.inference_server import InferenceServer
from unilab_learner.learner import OffPolicyLearner
from unilab_learner.replay.ingress_drain import IngressDrain
from unilab_learner.saver import Progress, Saver
from unilab_learner.step_trace import ReplayTrace, StepTrace

WAIT, INFERENCE, RELEASE = "collector_wait", "inference", "collector_release"
BATCH_WAIT, SAMPLE, LEARNING = "replay_batch_wait", "replay_sample", "learning"
PHASES = (WAIT, INFERENCE, RELEASE, BATCH_WAIT, SAMPLE, LEARNING)
NS_PER_S = 1_000_000_000


@dataclass(kw_only=True, slots=True)
class LoopParts:
    """What the loop connects; it owns none of them."""

    config: Config
    learner: OffPolicyLearner[Any]
    server: InferenceServer
    ingress: IngressDrain
    ingress_gauges: Callable[[], Mapping[str, float]]
    saver: Saver
    logger: TrainingLogger
    collector_ring: RingReader
    waiter: Waiter
    """Watches launcher and collector; a wait ends with Closed at stop level 2."""
    beat: RoleBeat
    stop_level: Callable[[], int]
    num_envs: int
    progress: Progress
    """Counters to continue from."""
    resumed: bool
    make_timer: Callable[[Iterable[str]], PhaseTimer] = PhaseTimer
    """What stands in its place when the timeline is recorded."""
    steps: StepTrace = field(default_factory=StepTrace.silent)
    segments: ReplayTrace = field(default_factory=ReplayTrace.silent)


class OffPolicyLoop:
    """One training session of one rank; see the module docstring."""

    def __init__(self, parts: LoopParts) -> None:
        self._parts = parts
        self._algo = parts.learner.cfg
        self._training = parts.config.training
        self._progress = parts.progress
        # The step axis counts answered ticks: when their rows arrive depends on the scheduler, and
        # two iterations must not share a point of the axis.
        self._served_env_steps = parts.progress.env_steps
        self._timer = parts.make_timer(PHASES)
        self._skipped = 0
        self._start_ns = time.monotonic_ns()
        self._metrics: dict[str, float] = {}
        self.last_reports: list[dict[str, Any]] = []
        """Collector records of the newest iteration that had any."""

    def run(self) -> str:
        """Train; return why it ended: completed, wall_time or stopped.

        Raises:
            Closed: a stop without saving.
            PeerDead: the collector or the launcher died.
            NonFiniteError: a loss, a gradient or an action was not finite.
            FinalSaveError: the last checkpoint could not be written.
        """
        self._warm_up()
        self._parts.logger.mark_trainable(time.monotonic_ns())
        self._timer.start_cycle()
        while (reason := self._end_reason()) is None:
            self._iterate()
            # The report of iteration k runs inside cycle k+1: every moment is in exactly one.
            self._timer.start_cycle()
            with self._parts.steps.metrics(self._progress.iteration):
                self._report()
            self._save_if_due()
        self._close()
        self._parts.beat.phase("finalize/checkpoint")
        self._parts.saver.save_final(self._progress)
        return reason

    # --- the phases of an iteration ------------------------------------------------------------

    def _iterate(self) -> None:
        timer, learner, beat = self._timer, self._parts.learner, self._parts.beat
        steps, segments = self._parts.steps, self._parts.segments
        steps.begin(self._progress.iteration)
        for _ in range(self._training.env_steps_per_sync):
            self._serve(self._wait_for_request(), timer)
        beat.phase("training/replay_prepare")
        self._drain()
        learner.gather()
        segments.gathered()
        timer.lap(BATCH_WAIT)
        batches = learner.take()
        timer.lap(SAMPLE)
        beat.phase("training/learner_update")
        steps.batch_ready()
        with steps.update():
            self._metrics, skipped = learner.learn(batches)
        timer.lap(LEARNING)
        self._progress.iteration += 1
        segments.looked_at(learner.replay.last_draw, learner.replay.ticks_written)
        steps.updated(self._progress.iteration)
        with steps.sync(self._progress.iteration):
            pass  # the next answer already comes from the new weights
        self._require_finite(skipped)
        beat.counts(self._progress.iteration, self._served_env_steps)
        beat.advance()

    def _wait_for_request(self) -> int:
        beat = self._parts.beat
        beat.phase("training/wait_for_inference_request", awaits="collector")
        # No time limit: the waiter ends it when the collector dies, the supervisor when it hangs.
        return self._parts.waiter.wait(
            self._drain_and_look, timeout_s=None, awaits="collector"
        )  # SYNC POINT: request

    def _drain_and_look(self) -> int | None:
        self._drain()
        return self._parts.server.try_request()

    def _serve(self, seq: int, timer: PhaseTimer) -> None:
        server, beat = self._parts.server, self._parts.beat
        timer.lap(WAIT)
        beat.phase("training/learner_inference")
        server.infer(seq)
        timer.lap(INFERENCE)
        beat.phase("training/inference_response")
        server.respond(seq, self._progress.iteration)  # SYNC POINT: response
        timer.lap(RELEASE)
        self._served_env_steps += self._parts.num_envs
        beat.advance()

    def _drain(self) -> None:
        ticks = self._parts.ingress.drain()
        self._progress.env_steps += ticks * self._parts.num_envs

    # --- around the iterations -----------------------------------------------------------------

    def _warm_up(self) -> None:
        """Serve until the replay can be sampled and `learning_starts` ticks are in it."""
        learner, server = self._parts.learner, self._parts.server
        needed = max(self._algo.learning_starts, 1)
        # A resumed policy fills its replay by itself: random actions would be a step back.
        server.policy = learner.act if self._parts.resumed else learner.act_randomly
        timer = self._parts.make_timer(PHASES)
        timer.start_cycle()
        self._parts.beat.phase("training/startup_complete")
        while self._parts.stop_level() < STOP_SAVE:
            seq = self._wait_for_request()
            if learner.replay.ticks_written >= needed and learner.replay.is_ready:
                break  # this request is the first of the first iteration
            self._serve(seq, timer)
            self._parts.logger.report_status(
                "Warm-up", self._progress.env_steps, learner.replay.size
            )
        server.policy = learner.act
        server.clear_times()
        self._parts.collector_ring.read()

    def _end_reason(self) -> str | None:
        limit_s = self._training.max_wall_time_s
        stop_level = self._parts.stop_level()
        if stop_level >= STOP_NOW:
            raise Closed("stopped without saving")
        if stop_level >= STOP_SAVE:
            return "stopped"
        if self._progress.iteration >= self._algo.max_iterations:
            return "completed"
        if limit_s is not None and self.elapsed_s >= limit_s:
            return "wall_time"
        return None

    @property
    def elapsed_s(self) -> float:
        """Time since the loop was built."""
        return (time.monotonic_ns() - self._start_ns) / NS_PER_S

    def _close(self) -> None:
        """Answer the request in flight with `closed`; nothing is left in the ingress after it."""
        beat = self._parts.beat
        beat.phase("finalize/collector_quiesce", awaits="collector")
        seq = self._parts.waiter.wait(self._drain_and_look, timeout_s=None, awaits="collector")
        # The collector commits a tick before it requests the next: after this drain all is stored.
        self._drain()
        self._parts.server.respond_closed(seq, self._progress.iteration)  # SYNC POINT: response
        beat.phase("finalize/replay_pipeline_close")
        self._parts.ingress.close()

    def _require_finite(self, skipped: int) -> None:
        """Refused optimiser steps end the job, or are reported, as the guard's policy says."""
        new, self._skipped = skipped - self._skipped, skipped
        guard: NanGuardConfig = self._training.nan_guard
        if new <= 0 or not guard.enabled:
            return
        if guard.policy == "stop":
            raise NonFiniteError(source="loss", step=self._progress.iteration)
        self._parts.logger.note(
            f"iteration {self._progress.iteration}: {new} steps refused, loss not finite",
            level="warning",
        )

    def _save_if_due(self) -> None:
        saver = self._parts.saver
        saver.export_policy_if_due(self._progress)
        if saver.due(self._progress):
            self._parts.beat.phase("training/checkpoint")
            with self._parts.steps.checkpoint():
                self._parts.logger.note(saver.try_save(self._progress))

    # --- figures -------------------------------------------------------------------------------

    def _report(self) -> None:
        """Hand the finished iteration to the logger, exactly once."""
        parts, timer = self._parts, self._timer
        records = parts.collector_ring.read()
        self.last_reports = records or self.last_reports
        for record in records:
            mean_return = record.get("episodes", {}).get("mean_return")
            if mean_return is not None:
                self._progress.mean_return = float(mean_return)
        parts.logger.submit(
            IterationSample(
                iteration=self._progress.iteration,
                env_steps=self._served_env_steps,
                wall_s=timer.wall_ns / NS_PER_S,
                learner=self._times(),
                metrics={**self._metrics, **self._ingress_metrics()},
                env_steps_delta=self._training.env_steps_per_sync * parts.num_envs,
                collector=records,
                replay_rows=parts.learner.rows_per_iteration,
                buffer_rows=parts.learner.replay.size,
            )
        )
        timer.clear()
        parts.server.clear_times()

    def _times(self) -> dict[str, float]:
        times = {
            f"Perf/learner_{phase}_ms": spent_ns / NS_PER_MS
            for phase, spent_ns in self._timer.phase_ns.items()
            if phase != LEARNING
        }
        for part, spent_ns in self._parts.server.nested_ns.items():
            times[f"Perf/learner_inference_{part}_ms"] = spent_ns / NS_PER_MS
        times["Perf/learning_time"] = self._timer.phase_ns[LEARNING] / NS_PER_S
        return times

    def _ingress_metrics(self) -> dict[str, float]:
        gauges = self._parts.ingress_gauges()
        return {
            "Train/replay_ingress_depth": gauges["ingress_depth"],
            "Train/replay_ingress_occupancy": gauges["occupancy"],
            "Train/replay_ingress_high_water": gauges["high_water_occupancy"],
            "Train/replay_ingress_backpressure_wait_ms": gauges["backpressure_wait_s"] * 1e3,
            "Train/replay_ingress_dropped_batches": gauges["dropped_batches"],
        }
