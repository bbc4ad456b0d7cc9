"""The model: a fold of records and board rows into an immutable `View`. No clock, I/O or widget.

    Batch (what a feed read at one moment) --fold--> Model state --> View

Samples carry the monotonic time of their record, so that the same batches always fold into the same
views. Two sources have each their own window, rhythm and age: the learner's iteration records and
the collector's reports. A source that stops sending keeps its last figures on screen; its age
grows.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from unilab_core.telemetry.diagnosis import contract_alarm, diagnose
from unilab_core.telemetry.metric_schema import (
    ALGOS,
    METRICS,
    collector_phases,
    in_ms,
    learner_phases,
)
from unilab_core.telemetry.plain import elapsed_s, eta_s
from unilab_core.telemetry.records import (
    CollectorReport,
    IterationReport,
    Note,
    RecordError,
    RunInfo,
    parse_record,
)
from unilab_core.telemetry.window import (
    RewardHistory,
    SampleWindow,
    collector_sample,
    iteration_sample,
)
from unilab_monitor.course import Course, Rhythm
from unilab_monitor.view import (
    CollectorView,
    EndView,
    EventView,
    FindingView,
    JobFacts,
    LearnerView,
    ProcessView,
    RewardView,
    State,
    View,
)

STALL_MIN_S = 2.0
STALL_GAPS = 5.0
SILENT_PROCESS_S = 10.0
"""A process without a beat for this long marks the job as stalled even before its first record."""

COURSE_BUCKETS = 120
COURSE_BUCKET_NS = 1_000_000_000
KEPT_EVENTS = 5

_LEARNER_TIME_OWNERS = ("learner", "learner submit thread", "ipc/dp_sync")
_METRIC_PREFIXES = ("Loss/", "Policy/", "Train/")
_SHOWN_ELSEWHERE = frozenset({"Train/mean_reward", "Train/mean_episode_length", "Train/iteration"})
_DERIVED = frozenset(
    {"wall_ms", "accounted_ms", "other_ms", "cycle_ms", "mean_return", "mean_length"}
)


@dataclass(kw_only=True, slots=True, frozen=True)
class Batch:
    """What a feed read in one turn."""

    now_ns: int
    """Monotonic time of the reading; for a finished job the time of its last record."""
    facts: JobFacts
    """What the registry or the run directory says about the job."""
    learner: Sequence[object] = ()
    """New records of the learner's ring, oldest first, unchecked."""
    collector: Sequence[object] = ()
    """New records of the collector's ring."""
    processes: tuple[ProcessView, ...] = ()
    """The board's rows as they are now."""
    attached: bool = False
    """Whether the job has come as far as being attachable."""
    stop_level: int = 0
    lapped: int = 0
    """Records lost to a faster writer so far."""
    trace_dropped: int = 0
    """Lines of the RL trace that its writers have lost so far."""
    unreadable: int = 0
    """Frames that were not records so far."""
    end: EndView | None = None
    """Set once the job has ended."""


class Model:
    """Folds batches; `fold` is the only method that changes it."""

    def __init__(self) -> None:
        self._run: RunInfo | None = None
        self._newest: IterationReport | None = None
        self._invalid = 0
        self._learner = SampleWindow()
        self._collector = SampleWindow()
        self._learner_rhythm = Rhythm(min_silence_s=STALL_MIN_S, gaps=STALL_GAPS)
        self._collector_rhythm = Rhythm(min_silence_s=STALL_MIN_S, gaps=STALL_GAPS)
        self._rewards = RewardHistory()
        self._reward_course = Course(bucket_ns=COURSE_BUCKET_NS, capacity=COURSE_BUCKETS)
        self._steps_course = Course(bucket_ns=COURSE_BUCKET_NS, capacity=COURSE_BUCKETS)
        self._terminations: Mapping[str, float] = {}
        self._collector_env_steps: int | None = None
        self._events: deque[Note] = deque(maxlen=KEPT_EVENTS)

    def fold(self, batch: Batch) -> View:
        """Take in what a feed has read and give the picture at the batch's time."""
        for record in (*batch.collector, *batch.learner):
            try:
                report = parse_record(record)
            except RecordError:
                self._invalid += 1
                continue
            if isinstance(report, CollectorReport):
                self._fold_collector(report)
            elif isinstance(report, IterationReport):
                self._fold_iteration(report)
            elif isinstance(report, RunInfo):
                self._run = report
            else:
                self._events.append(report)
        return self._view(batch)

    # --- records -------------------------------------------------------------------------------

    def _fold_iteration(self, report: IterationReport) -> None:
        self._newest = report
        self._learner_rhythm.add(report.t_ns)
        self._learner.add(report.t_ns, iteration_sample(report))
        self._rewards.add(report.reward_mean)
        self._reward_course.add(report.t_ns, report.reward_mean)
        self._steps_course.add(report.t_ns, report.steps_per_s)

    def _fold_collector(self, report: CollectorReport) -> None:
        self._collector_rhythm.add(report.t_ns)
        self._collector.add(report.t_ns, collector_sample(report))
        self._terminations = report.terminations_total
        self._collector_env_steps = report.env_steps

    # --- the picture ---------------------------------------------------------------------------

    def _view(self, batch: Batch) -> View:
        newest, run = self._newest, self._run
        facts = _facts(batch.facts, run)
        algo = facts.algo if facts.algo in ALGOS else None
        means = self._learner.means()
        learner = self._learner_view(means, algo, batch)
        collector = self._collector_view(algo, batch)
        warm_up = newest is not None and run is not None and run.trainable_ns is None
        eta = None
        if run is not None and newest is not None and batch.end is None:
            eta = eta_s(run, newest.iteration, newest.t_ns)
        return View(
            state=_state(batch, learner, collector),
            facts=facts,
            end=batch.end,
            iteration=newest.iteration if newest else None,
            env_steps=newest.env_steps if newest else self._collector_env_steps,
            status=newest.status if newest else None,
            warm_up=warm_up,
            elapsed_s=elapsed_s(run, batch.now_ns) if run else None,
            eta_s=eta,
            window_samples=self._learner.count,
            steps_per_s=means.get("steps_per_s"),
            rows_per_s=means.get("rows_per_s"),
            steps_course=self._steps_course.values(),
            episode_length=means.get("episode_length"),
            timeout_rate=means.get("timeout_rate"),
            buffer_rows=newest.buffer if newest else None,
            learner=learner,
            collector=collector,
            metrics={tag: value for tag, value in means.items() if _is_metric(tag)},
            rewards=self._reward_view(means),
            processes=batch.processes,
            findings=_findings(learner, collector),
            events=self._event_views(batch.now_ns),
            stop_level=batch.stop_level,
            lapped=batch.lapped,
            trace_dropped=batch.trace_dropped,
            dropped=newest.dropped if newest else 0,
            invalid=self._invalid + batch.unreadable,
        )

    def _learner_view(
        self, means: Mapping[str, float], algo: str | None, batch: Batch
    ) -> LearnerView:
        phases = learner_phases(algo) if algo else ()
        present = [in_ms(spec.tag, means[spec.tag]) for spec in phases if spec.tag in means]
        accounted_ms = sum(present) if present else means.get("accounted_ms")
        # `wall_ms` of a sample falls back to its accounted time where no wall was measured.
        wall_ms = means.get("wall_ms", accounted_ms)
        other_ms = None
        if wall_ms is not None and accounted_ms is not None:
            other_ms = max(wall_ms - accounted_ms, 0.0)
        return LearnerView(
            age_s=self._learner_rhythm.age_s(batch.now_ns),
            stalled=batch.end is None and self._learner_rhythm.is_silent(batch.now_ns),
            values={tag: value for tag, value in means.items() if _is_learner_time(tag)},
            wall_ms=wall_ms,
            other_ms=other_ms,
            accounted_ms=accounted_ms,
            alarm=contract_alarm(accounted_ms, wall_ms),
        )

    def _collector_view(self, algo: str | None, batch: Batch) -> CollectorView:
        means = self._collector.means()
        phases = collector_phases(algo) if algo else ()
        cycle_ms = None
        if phases and all(spec.tag in means for spec in phases):
            cycle_ms = sum(means[spec.tag] for spec in phases)
        wall_ms = means.get("wall_ms")
        other_ms = None
        if wall_ms is not None and cycle_ms is not None:
            other_ms = max(wall_ms - cycle_ms, 0.0)
        return CollectorView(
            age_s=self._collector_rhythm.age_s(batch.now_ns),
            stalled=batch.end is None and self._collector_rhythm.is_silent(batch.now_ns),
            values={
                tag: value
                for tag, value in means.items()
                if tag not in _DERIVED and not tag.startswith("reward/")
            },
            cycle_ms=cycle_ms,
            wall_ms=wall_ms,
            other_ms=other_ms,
        )

    def _reward_view(self, means: Mapping[str, float]) -> RewardView:
        return RewardView(
            mean=means.get("reward_mean"),
            peak=self._rewards.peak,
            trend=self._rewards.trend,
            course=self._reward_course.values(),
            terms=_family("reward/", means),
            terminations=_family("Episode_Termination/", self._terminations),
        )

    def _event_views(self, now_ns: int) -> tuple[EventView, ...]:
        return tuple(
            EventView(age_s=max(now_ns - note.t_ns, 0) / 1e9, text=note.text, level=note.level)
            for note in self._events
        )


def _facts(base: JobFacts, run: RunInfo | None) -> JobFacts:
    """What the learner says about the run, over what the registry or the run directory says."""
    if run is None:
        return base
    return replace(
        base,
        algo=run.algo,
        task=run.task,
        sim=run.sim,
        # A finished run may have been moved since.
        run_dir=base.run_dir or run.run_dir,
        device=run.device,
        num_gpus=run.num_gpus,
        max_iterations=run.max_iterations,
        num_envs=run.num_envs,
        batch_per_rank=run.batch_per_rank,
        ranks=run.ranks,
        cuda_mps=run.cuda_mps,
    )


def _state(batch: Batch, learner: LearnerView, collector: CollectorView) -> State:
    if batch.end is not None:
        return "ended"
    if not batch.attached:
        return "starting"
    silent = any(
        process.is_alive
        and process.phase.startswith("training/")
        and process.age_s is not None
        and process.age_s > SILENT_PROCESS_S
        for process in batch.processes
    )
    return "stalled" if learner.stalled or collector.stalled or silent else "running"


def _findings(learner: LearnerView, collector: CollectorView) -> tuple[FindingView, ...]:
    figures = {**learner.values}
    if learner.wall_ms is not None:
        figures["wall_ms"] = learner.wall_ms
    cycle = {**collector.values}
    if collector.cycle_ms is not None:
        cycle["cycle_ms"] = collector.cycle_ms
    found = diagnose(figures, cycle)
    return tuple(FindingView(finding=one.finding, check=one.check) for one in found)


def _family(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    return {
        tag.removeprefix(prefix): values[tag]
        for tag in sorted(values)
        if tag.startswith(prefix) and isfinite(values[tag])
    }


def _is_learner_time(tag: str) -> bool:
    spec = METRICS.get(tag)
    return tag == "Perf/iteration_time" or (
        spec is not None and spec.owner in _LEARNER_TIME_OWNERS and tag.startswith("Perf/")
    )


def _is_metric(tag: str) -> bool:
    """Whether a window key belongs among the metrics; unknown tags are shown rather than hidden."""
    if tag.startswith(_METRIC_PREFIXES):
        return tag not in _SHOWN_ELSEWHERE
    return "/" in tag and not tag.startswith(("Perf/", "reward/", "Episode"))
