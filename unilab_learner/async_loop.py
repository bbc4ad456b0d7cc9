"""The learner's main loop for APPO: consume finished rollouts while the next ones are collected.

    collector   | rollout N+1 ............... | rollout N+2 ...............
    learner     wait | stage | sample | update k                  | publish | wait
                Collector Wait  Replay Stage  Replay Sample  Learning  Weight Publish

An iteration takes at least one new rollout, and as many more as wait in the ring and fit into the
staging pool; it always ends with an update, so every iteration number is one. Phases are exclusive
laps of one timer; logging and saving are the rest, Other.

Policy lag: a rollout starts with the newest published version and waits at most behind a full ring
and one running update, so it is at most `ring_slots + 1` versions old when it is staged.

SYNC POINT pairs (the other ends are in the collector):
    rollout: `SlotProducer.commit`    -> `SlotConsumer.try_acquire`
    weights: `SnapshotWriter.publish` -> `SnapshotReader.try_fetch`

Ends after `max_iterations`, after `max_wall_time_s`, or by a stop: level 1 finishes the iteration
and saves, level 2 leaves through `Closed`, raised by a wait.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unilab_core.config.config import Config
from unilab_core.run.failures import NonFiniteError
from unilab_core.telemetry.phase_timer import NS_PER_MS, PhaseTimer
from unilab_core.telemetry.training_logger import IterationSample, TrainingLogger
from unilab_ipc.heartbeat import RoleBeat
from unilab_ipc.metric_queue import RingReader
from unilab_ipc.policy_snapshot import SnapshotWriter
from unilab_ipc.rollout_ring import RolloutSlot
from unilab_ipc.slot_ring import SlotConsumer
from unilab_ipc.waiting import Waiter
from unilab_learner.appo_learner import AppoLearner
from unilab_learner.ending import end_reason, newest_mean_return
from unilab_learner.saver import Progress, Saver
from unilab_learner.step_trace import StepTrace

WAIT, STAGE, SAMPLE = "collector_wait", "replay_stage", "replay_sample"
LEARNING, PUBLISH = "learning", "weight_publish"
PHASES = (WAIT, STAGE, SAMPLE, LEARNING, PUBLISH)
NS_PER_S = 1_000_000_000


@dataclass(kw_only=True, slots=True)
class AsyncParts:
    """What the loop connects; it owns none of them."""

    config: Config
    learner: AppoLearner
    ring: SlotConsumer[RolloutSlot]
    snapshot: SnapshotWriter
    num_values: int
    """P, width of the flat policy."""
    saver: Saver
    logger: TrainingLogger
    collector_ring: RingReader
    waiter: Waiter
    """Watches launcher and collector; a wait ends with Closed at stop level 2."""
    beat: RoleBeat
    stop_level: Callable[[], int]
    progress: Progress
    """Counters to continue from."""
    make_timer: Callable[[Iterable[str]], PhaseTimer] = PhaseTimer
    """What stands in its place when the timeline is recorded."""
    steps: StepTrace = field(default_factory=StepTrace.silent)


class AsyncLoop:
    """One training session of one rank; see the module docstring."""

    def __init__(self, parts: AsyncParts) -> None:
        self._parts = parts
        self._algo = parts.learner.cfg
        self._progress = parts.progress
        self._timer = parts.make_timer(PHASES)
        self._start_ns = time.monotonic_ns()
        self._values = np.zeros(parts.num_values, np.float32)
        self._metrics: dict[str, float] = {}
        self.last_reports: list[dict[str, Any]] = []
        """Collector records of the newest iteration that had any."""
        self._num_read = 0
        self._num_taken = 0
        self._skipped = 0
        self._dropped = 0

    def run(self) -> str:
        """Train; return why it ended: completed, wall_time or stopped.

        Raises:
            Closed: a stop without saving.
            PeerDead: the collector or the launcher died.
            NonFiniteError: a loss or a gradient was not finite.
            FinalSaveError: the last checkpoint could not be written.
        """
        parts = self._parts
        parts.beat.phase("training/startup_complete")
        self._publish()
        parts.logger.mark_trainable(time.monotonic_ns())
        self._timer.start_cycle()
        while (reason := self._end_reason()) is None:
            self._iterate()
            # The report of iteration k runs inside cycle k+1: every moment is in exactly one.
            self._timer.start_cycle()
            with parts.steps.metrics(self._progress.iteration):
                self._report()
            self._save_if_due()
        parts.beat.phase("finalize/replay_pipeline_close")
        parts.ring.close()
        parts.beat.phase("finalize/checkpoint")
        parts.saver.save_final(self._progress)
        return reason

    @property
    def elapsed_s(self) -> float:
        """Time since the loop was built."""
        return (time.monotonic_ns() - self._start_ns) / NS_PER_S

    def release_unread(self) -> int:
        """Take the rollouts that arrived after the last update out of the ring; how many."""
        num_unread = 0
        while self._parts.ring.try_acquire() is not None:
            self._parts.ring.release()
            num_unread += 1
        return num_unread

    def _iterate(self) -> None:
        timer, learner, beat = self._timer, self._parts.learner, self._parts.beat
        steps = self._parts.steps
        steps.begin(self._progress.iteration)
        waiting = self._parts.ring.occupancy
        self._num_read = 0
        while not learner.pool.has_new:
            self._take(self._wait_for_rollout())
        while self._num_read < self._algo.replay_queue_size:
            slot = self._parts.ring.try_acquire()  # SYNC POINT: rollout
            if slot is None:
                break
            self._take(slot)
        beat.phase("training/rollout_sample")
        learner.sample()
        timer.lap(SAMPLE)
        beat.phase("training/learner_update")
        steps.batch_ready()
        with steps.update():
            metrics, skipped = learner.learn()
        timer.lap(LEARNING)
        self._require_finite(skipped)
        self._progress.iteration = learner.version
        steps.updated(self._progress.iteration)
        beat.phase("training/weight_publish")
        with steps.sync(self._progress.iteration):
            self._publish()
        timer.lap(PUBLISH)
        self._metrics = metrics | {
            "Train/ring_available_slots": float(waiting),
            "Train/rollouts_read": float(self._num_read),
        }
        beat.counts(self._progress.iteration, self._progress.env_steps)
        beat.advance()

    def _wait_for_rollout(self) -> RolloutSlot:
        beat = self._parts.beat
        beat.phase("training/wait_for_rollout", awaits="collector")
        # No time limit: the waiter ends it when the collector dies, the supervisor when it hangs.
        slot = self._parts.waiter.wait(
            self._parts.ring.try_acquire, timeout_s=None, awaits="collector"
        )  # SYNC POINT: rollout
        self._timer.lap(WAIT)
        return slot

    def _take(self, slot: RolloutSlot) -> None:
        """Stage one rollout and give its slot back at once."""
        self._parts.beat.phase("training/rollout_stage")
        kept = self._parts.learner.stage(slot)
        self._parts.ring.release()
        # The ring loses and reorders nothing: the n-th to arrive is the collector's n-th.
        self._parts.steps.rollout_taken(self._num_taken, kept=kept)
        self._num_taken += 1
        self._num_read += 1
        self._progress.env_steps += self._env_steps_per_rollout
        self._timer.lap(STAGE)

    def _publish(self) -> None:
        """Weights and normaliser of one version: they change together, so one number is both."""
        learner = self._parts.learner
        learner.pack(self._values)
        version = learner.version
        self._parts.snapshot.publish(self._values, version, version)  # SYNC POINT: weights

    @property
    def _env_steps_per_rollout(self) -> int:
        return self._algo.num_envs * self._algo.steps_per_env

    def _end_reason(self) -> str | None:
        return end_reason(
            self._parts.config,
            iteration=self._progress.iteration,
            elapsed_s=self.elapsed_s,
            stop_level=self._parts.stop_level(),
        )

    def _require_finite(self, skipped: int) -> None:
        """Refused optimiser steps end the job, or are reported, as the guard's policy says."""
        new, self._skipped = skipped - self._skipped, skipped
        guard = self._parts.config.training.nan_guard
        if new <= 0 or not guard.enabled:
            return
        if guard.policy == "stop":
            raise NonFiniteError(source="loss", step=self._progress.iteration)
        self._parts.logger.note(
            f"iteration {self._progress.iteration}: {new} steps refused, loss not finite",
            level="warning",
        )

    def _report(self) -> None:
        """Hand the finished iteration to the logger, exactly once."""
        parts, timer = self._parts, self._timer
        records = parts.collector_ring.read()
        self.last_reports = records or self.last_reports
        self._progress.mean_return = newest_mean_return(records, self._progress.mean_return)
        parts.logger.submit(
            IterationSample(
                iteration=self._progress.iteration,
                env_steps=self._progress.env_steps,
                wall_s=timer.wall_ns / NS_PER_S,
                learner=self._times(),
                metrics=self._metrics,
                env_steps_delta=self._num_read * self._env_steps_per_rollout,
                collector=records,
                replay_rows=parts.learner.rows_per_iteration,
            )
        )
        timer.clear()
        dropped = parts.learner.pool.num_dropped
        if dropped > self._dropped:
            parts.logger.note(
                f"{dropped - self._dropped} rollouts too old (algo.max_policy_lag)", level="warning"
            )
            self._dropped = dropped

    def _times(self) -> dict[str, float]:
        times = {
            f"Perf/learner_{phase}_ms": spent_ns / NS_PER_MS
            for phase, spent_ns in self._timer.phase_ns.items()
            if phase != LEARNING
        }
        times["Perf/learning_time"] = self._timer.phase_ns[LEARNING] / NS_PER_S
        return times

    def _save_if_due(self) -> None:
        saver = self._parts.saver
        saver.export_policy_if_due(self._progress)
        if saver.due(self._progress):
            self._parts.beat.phase("training/checkpoint")
            with self._parts.steps.checkpoint():
                self._parts.logger.note(saver.try_save(self._progress))
