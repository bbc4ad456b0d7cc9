"""The one place a learner hands its iteration to.

    learner --submit(IterationSample)--> TrainingLogger --scalars--> sinks (TensorBoard, W&B)
                                              `--------IterationReport--> metric ring -> monitors

`submit` runs in the learner's main thread on every iteration. It validates (an unknown, foreign or
duplicate tag is a ValueError: a fault in our code, found at the first iteration), derives what the
schema calls logger-owned, and hands over; it does no I/O. Sinks and the ring neither block nor
raise: they drop and count. Sinks get each logged iteration's own, unsmoothed values; the two-second
window exists in the monitors only.

Logged iterations: every `log_interval`-th, and on `close` the last one. Step axis: total env steps
once there are any, with Train/iteration beside it; before that the iteration number.

Owned by: the learner's main thread (rank 0 in a data-parallel run).
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from unilab_core.telemetry.collector_fold import CollectorFigures, CollectorFold
from unilab_core.telemetry.diagnosis import contract_alarm
from unilab_core.telemetry.metric_schema import (
    LOGGER_OWNED,
    METRICS,
    allowed_tags,
    checked_number,
    in_ms,
    learner_phases,
    validate_tags,
)
from unilab_core.telemetry.records import IterationReport, Level, Note, RunInfo
from unilab_core.telemetry.window import TailThroughput

RUN_RECORD_INTERVAL_NS = 5_000_000_000
"""How often the static facts are repeated for monitors that attach late."""

STATUS_INTERVAL_NS = 250_000_000
"""Warm-up beats closer together than this are not worth a record."""

ALARM_INTERVAL_NS = 10_000_000_000

_LEARNING_TIME = "Perf/learning_time"
_LEARNER_OWNERS = ("learner", "learner submit thread", "ipc/dp_sync")

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """A persistent backend. Neither method blocks beyond its bound; neither raises."""

    @property
    def dropped_count(self) -> int:
        """Records dropped so far."""
        ...

    def write(self, step: int, wall_time_s: float, scalars: Mapping[str, float]) -> None:
        """Take one record; may drop it, counted."""
        ...

    def close(self, timeout_s: float) -> bool:
        """Write what is pending; False when the time did not suffice."""
        ...


class Ring(Protocol):
    """The writing end of a metric ring (`unilab_ipc.metric_queue.RingWriter`)."""

    @property
    def dropped_count(self) -> int:
        """Records dropped so far."""
        ...

    def write(self, record: dict) -> bool:
        """Publish one record; False when it was dropped, counted."""
        ...


@dataclass(kw_only=True, slots=True, frozen=True)
class IterationSample:
    """All that a learner knows about one iteration."""

    iteration: int
    env_steps: int
    """Total transitions of all environments so far."""
    wall_s: float | None
    """Start of the loop to the end of the update; None when it was not measured."""
    learner: Mapping[str, float]
    """Learner timing tags in their unit: phases, Perf/learning_time, nested details."""
    metrics: Mapping[str, float]
    """Loss, Policy and Train tags."""
    env_steps_delta: int
    """Transitions that belong to this iteration."""
    collector: Sequence[Mapping] = field(default=())
    """Collector ring records since the previous iteration, oldest first."""
    replay_rows: int = 0
    """Rows the update trained on."""
    buffer_rows: int | None = None
    status: str = "Training"


class TrainingLogger:
    """Derives, validates and distributes the figures of a training run."""

    def __init__(
        self,
        run: RunInfo,
        sinks: Sequence[Sink],
        ring: Ring | None,
        log_interval: int | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.run = run if log_interval is None else replace(run, log_interval=log_interval)
        if self.run.log_interval < 1:
            raise ValueError(f"log_interval: expected at least 1, got {self.run.log_interval}")
        self._sinks = tuple(sinks)
        self._ring = ring
        self._now_ns = now_ns
        self._fold = CollectorFold(run.algo)
        self._tail = TailThroughput()
        self._last: IterationReport | None = None
        self._best_mean_reward: float | None = None
        self._pending: tuple[int, float, dict[str, float]] | None = None
        self._run_record_ns = self._status_ns = self._alarm_ns = -(2**62)
        self._closed = False
        self._alarm_count = 0
        self._dropped_transitions: dict[str, int] = {}

        self._allowed = allowed_tags(run.algo, ranks=run.ranks, accelerator=run.accelerator)
        self._metric_tags = self._allowed - LOGGER_OWNED
        self._learner_tags = frozenset(
            tag
            for tag in self._allowed
            if METRICS[tag].owner in _LEARNER_OWNERS and METRICS[tag].part != "value"
        )
        # ms per unit, for the exclusive phases that add up to Iter Wall.
        self._phase_ms = {m.tag: in_ms(m.tag, 1.0) for m in learner_phases(run.algo)}
        self._announce(self._now_ns())

    @property
    def dropped_count(self) -> int:
        """Records lost so far by sinks and ring together."""
        lost = sum(sink.dropped_count for sink in self._sinks)
        return lost if self._ring is None else lost + self._ring.dropped_count

    @property
    def alarm_count(self) -> int:
        """Iterations whose exclusive phases added up to more than their wall."""
        return self._alarm_count

    def mark_trainable(self, t_ns: int) -> None:
        """The first trainable moment: elapsed time and ETA start here."""
        self.run = replace(self.run, trainable_ns=t_ns)
        self._announce(self._now_ns())

    def report_status(self, status: str, env_steps: int, buffer_rows: int | None) -> None:
        """A sign of life outside of iterations (warm-up): monitors only, at most 4 a second."""
        now_ns = self._now_ns()
        if now_ns - self._status_ns < STATUS_INTERVAL_NS:
            return
        self._status_ns = now_ns
        self._repeat_run_record(now_ns)
        self._publish(
            IterationReport(
                t_ns=now_ns,
                iteration=0,
                env_steps=env_steps,
                buffer=buffer_rows,
                status=status,
                dropped=self.dropped_count,
            ).record()
        )

    def note(self, text: str, level: Level = "info") -> None:
        """A remark for the monitors."""
        self._publish(Note(t_ns=self._now_ns(), text=text, level=level).record())

    def submit(self, sample: IterationSample) -> None:
        """Take one iteration. ValueError when the sample breaks the schema."""
        assert not self._closed, "submit after close"
        now_ns = self._now_ns()
        learner = self._checked_learner(sample.learner)
        metrics = self._checked_metrics(sample.metrics, learner)
        collected = self._fold.update(sample.collector)
        self._watch_drops(sample.collector)
        report = self._report(sample, learner, metrics, collected, now_ns)
        step = sample.env_steps if sample.env_steps > 0 else sample.iteration
        # Wall-clock time is only the label that TensorBoard shows; ages are monotonic.
        record = (step, time.time(), self._scalars(report, collected))
        if sample.iteration % self.run.log_interval == 0:
            self._pending = None
            self._write(record)
        else:
            self._pending = record
        self._repeat_run_record(now_ns)
        self._publish(report.record())
        self._watch_contract(report, now_ns)
        self._last = report

    def close(self, timeout_s: float) -> bool:
        """Write the last iteration if it was thinned out, and end the sinks in bounded time."""
        if self._closed:
            return True
        self._closed = True
        if self._pending is not None:
            self._write(self._pending)
        deadline_ns = self._now_ns() + round(timeout_s * 1e9)
        complete = True
        for sink in self._sinks:
            complete &= sink.close(max(deadline_ns - self._now_ns(), 0) / 1e9)
        return complete

    def summary(self) -> dict[str, float | int | dict[str, int] | None]:
        """The fields of run_summary.json that come from the submitted iterations."""
        last = self._last or IterationReport(t_ns=0, iteration=0, env_steps=0)
        inference = "Perf/learner_inference"
        return {
            "completed_iterations": last.iteration,
            "total_env_steps": last.env_steps,
            "dropped_transitions": self._dropped_transitions,
            "final_mean_reward": last.reward_mean,
            "best_mean_reward": self._best_mean_reward,
            "mean_episode_length": last.episode_length,
            "final_env_steps_per_sec": last.steps_per_s,
            "dropped_records": self.dropped_count,
            "tail_env_steps_per_sec": self._tail.steps_per_s,
            "tail_iteration_count": self._tail.count,
            "tail_window_iterations": self._tail.window_iterations,
            "final_learner_replay_rows_per_sec": last.rows_per_s,
            "final_cycle_wall_ms": last.wall_ms,
            "final_inference_ms": last.learner.get(f"{inference}_ms"),
            "final_inference_h2d_ms": last.learner.get(f"{inference}_h2d_ms"),
            "final_inference_forward_ms": last.learner.get(f"{inference}_forward_ms"),
            "final_inference_d2h_ms": last.learner.get(f"{inference}_d2h_ms"),
        }

    # --- validation -------------------------------------------------------------------------

    def _checked_learner(self, learner: Mapping[str, float]) -> dict[str, float]:
        if not learner.keys() <= self._learner_tags:
            unknown = sorted(learner.keys() - self._learner_tags)
            raise ValueError(f"not a learner time of this {self.run.algo} run: {unknown}")
        if _LEARNING_TIME not in learner:
            raise ValueError(f"learner times lack {_LEARNING_TIME!r}")
        return {tag: checked_number(tag, value) for tag, value in learner.items()}

    def _checked_metrics(
        self, metrics: Mapping[str, float], learner: Mapping[str, float]
    ) -> dict[str, float]:
        if not metrics.keys() <= self._metric_tags:
            owned = sorted(metrics.keys() & LOGGER_OWNED)
            if owned:
                raise ValueError(f"the training logger derives {owned}; do not pass them in")
            self._check_families(metrics)
        twice = metrics.keys() & learner.keys()
        if twice:
            raise ValueError(f"submitted twice in one iteration: {sorted(twice)}")
        return {tag: checked_number(tag, value) for tag, value in metrics.items()}

    def _check_families(self, metrics: Mapping[str, float]) -> None:
        validate_tags(self.run.algo, metrics, self._metric_tags)
        for tag in metrics.keys() - self._metric_tags:
            if tag.startswith(("reward/", "Episode_Termination/")):
                raise ValueError(f"{tag!r} comes from the collector's reports only")

    # --- derivation -------------------------------------------------------------------------

    def _report(
        self,
        sample: IterationSample,
        learner: dict[str, float],
        metrics: dict[str, float],
        collected: CollectorFigures,
        now_ns: int,
    ) -> IterationReport:
        accounted_ms = sum(
            learner[tag] * scale for tag, scale in self._phase_ms.items() if tag in learner
        )
        wall_s = accounted_ms / 1e3 if sample.wall_s is None else float(sample.wall_s)
        if wall_s > 0.0:
            self._tail.add(sample.env_steps_delta, wall_s)
        reward, best = collected.mean_reward, self._best_mean_reward
        if reward is not None and (best is None or reward > best):
            self._best_mean_reward = reward
        return IterationReport(
            rank=0,
            t_ns=now_ns,
            iteration=sample.iteration,
            env_steps=sample.env_steps,
            wall_ms=None if sample.wall_s is None else wall_s * 1e3,
            accounted_ms=accounted_ms,
            other_ms=max(wall_s * 1e3 - accounted_ms, 0.0),
            learner=learner,
            metrics=metrics,
            reward_mean=reward,
            reward_best=self._best_mean_reward,
            rewards=collected.rewards,
            terminations=collected.terminations,
            episode_length=collected.mean_episode_length,
            timeout_rate=collected.timeout_rate,
            steps_per_s=sample.env_steps_delta / wall_s if wall_s > 0.0 else None,
            rows_per_s=sample.replay_rows / wall_s if wall_s > 0.0 else None,
            buffer=sample.buffer_rows,
            status=sample.status,
            dropped=self.dropped_count,
        )

    def _scalars(self, report: IterationReport, collected: CollectorFigures) -> dict[str, float]:
        """What backends keep of an iteration: canonical tags only, nothing shown-only."""
        derived: dict[str, float | None] = {
            "Train/iteration": float(report.iteration) if report.env_steps > 0 else None,
            "Train/mean_reward": collected.mean_reward,
            "Train/mean_episode_length": collected.mean_episode_length,
            "Episode/timeout_rate": collected.timeout_rate,
            "Perf/total_fps": report.steps_per_s,
            "Perf/iteration_time": None if report.wall_ms is None else report.wall_ms / 1e3,
        }
        scalars = {
            tag: value
            for tag, value in derived.items()
            if value is not None and tag in self._allowed
        }
        scalars.update(report.metrics)
        scalars.update(report.learner)
        scalars.update(collected.perf)
        scalars.update(collected.rewards)
        scalars.update(collected.terminations)
        return scalars

    # --- distribution -----------------------------------------------------------------------

    def _write(self, record: tuple[int, float, dict[str, float]]) -> None:
        for sink in self._sinks:
            sink.write(*record)

    def _publish(self, record: dict) -> None:
        if self._ring is not None:
            self._ring.write(record)

    def _announce(self, now_ns: int) -> None:
        self._run_record_ns = now_ns
        self._publish(self.run.record(now_ns))

    def _repeat_run_record(self, now_ns: int) -> None:
        if now_ns - self._run_record_ns >= RUN_RECORD_INTERVAL_NS:
            self._announce(now_ns)

    def _watch_drops(self, records: Sequence[Mapping]) -> None:
        """Say when the NaN guard of a collector has dropped more; its totals are cumulative."""
        for record in records:
            totals = record.get("dropped")
            if not totals or totals == self._dropped_transitions:
                continue
            self._dropped_transitions = {str(name): int(count) for name, count in totals.items()}
            by_source = ", ".join(f"{n} {name}" for name, n in self._dropped_transitions.items())
            self.note(f"transitions dropped so far: {by_source}", level="warning")

    def _watch_contract(self, report: IterationReport, now_ns: int) -> None:
        alarm = contract_alarm(report.accounted_ms, report.wall_ms)
        if alarm is None:
            return
        self._alarm_count += 1
        if now_ns - self._alarm_ns >= ALARM_INTERVAL_NS:
            self._alarm_ns = now_ns
            _log.warning("iteration %d: %s", report.iteration, alarm)
            self.note(alarm, level="warning")
