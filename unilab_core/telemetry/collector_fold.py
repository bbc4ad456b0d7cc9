"""The collector's reports of one learner iteration, folded into canonical scalars.

Several reports of one iteration become one value as their tag's `aggregation` says. Episode and
termination figures come from cumulative totals, so that a report lost in the ring biases nothing:

    completed  ..12      12      17      17        20
    timeouts   ...3       3       4       4         7
    rate         -       -      1/5     1/5       3/3      (absent before the first completion)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from unilab_core.telemetry.metric_schema import FAMILIES, MAX_FAMILY_TERMS, METRICS, check_term
from unilab_core.telemetry.metric_spec import MetricSpec
from unilab_core.telemetry.records import CollectorReport

_REWARD, _TERMINATION = (f for f in FAMILIES if f.owner == "environment")


@dataclass(kw_only=True, slots=True, frozen=True)
class CollectorFigures:
    """What one iteration's reports say."""

    perf: dict[str, float]
    """Perf/collector_* of this iteration; empty when no report arrived."""
    mean_reward: float | None
    """Last 100 episodes; the latest known."""
    mean_episode_length: float | None
    timeout_rate: float | None
    rewards: dict[str, float]
    terminations: dict[str, float]


class CollectorFold:
    """Folds reports; keeps the totals and the last known episode figures between iterations."""

    def __init__(self, algo: str) -> None:
        perf = [m for m in METRICS.values() if m.owner == "collector" and algo in m.algos]
        perf = [m for m in perf if m.tag.startswith("Perf/")]
        self._gauges = frozenset(m.tag for m in perf if m.part == "value" and m.unit != "ms")
        self._timings = frozenset(m.tag for m in perf) - self._gauges
        self._terms: set[str] = set()
        self._completed = 0
        self._timeouts = 0
        self._terminations_total: dict[str, float] = {}
        self._mean_reward: float | None = None
        self._mean_episode_length: float | None = None
        self._timeout_rate: float | None = None

    def update(self, records: Sequence[Mapping]) -> CollectorFigures:
        """Take the ring records since the previous iteration, oldest first.

        ValueError for a timing or inference key outside the schema, for a bad gauge and for a
        term name that is not allowed: those are faults of the collector, not of the transport.
        """
        reports = [CollectorReport.from_record(record) for record in records]
        for report in reports:
            self._check(report)
        terminations: dict[str, float] = {}
        if reports:
            self._take_episodes(reports[-1])
            terminations = self._take_terminations(reports[-1])
        perf = aggregate([report.timing for report in reports])
        perf.update(aggregate([report.inference for report in reports]))
        return CollectorFigures(
            perf=perf,
            mean_reward=self._mean_reward,
            mean_episode_length=self._mean_episode_length,
            timeout_rate=self._timeout_rate,
            rewards=_means([report.rewards for report in reports]),
            terminations=terminations,
        )

    def _check(self, report: CollectorReport) -> None:
        if not report.timing.keys() <= self._timings:
            raise _unknown("timing", report.timing.keys() - self._timings)
        if not report.inference.keys() <= self._gauges:
            raise _unknown("inference", report.inference.keys() - self._gauges)
        for tag, value in report.inference.items():
            if not 0.0 <= value < inf:
                raise ValueError(f"metric {tag!r}: expected a finite number >= 0, got {value}")
        self._check_terms(_REWARD, report.rewards)
        self._check_terms(_TERMINATION, report.terminations_total)

    def _check_terms(self, family: MetricSpec, tags: Mapping[str, float]) -> None:
        if tags.keys() <= self._terms:
            return
        for tag in tags.keys() - self._terms:
            if not tag.startswith(family.prefix):
                raise ValueError(f"metric {tag!r} does not start with {family.prefix!r}")
            check_term(family, tag[len(family.prefix) :])
            if sum(known.startswith(family.prefix) for known in self._terms) >= MAX_FAMILY_TERMS:
                raise ValueError(f"{family.tag}: more than {MAX_FAMILY_TERMS} terms in one run")
            self._terms.add(tag)

    def _take_episodes(self, report: CollectorReport) -> None:
        completed = report.episodes_completed - self._completed
        if completed > 0:
            self._timeout_rate = (report.timeouts - self._timeouts) / completed
            self._completed, self._timeouts = report.episodes_completed, report.timeouts
        if report.mean_return is not None:
            self._mean_reward = report.mean_return
        if report.mean_length is not None and report.mean_length > 0.0:
            self._mean_episode_length = report.mean_length

    def _take_terminations(self, report: CollectorReport) -> dict[str, float]:
        before = self._terminations_total
        self._terminations_total = dict(report.terminations_total)
        return {
            tag: total - before.get(tag, 0.0) for tag, total in report.terminations_total.items()
        }


def aggregate(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """One table from several: each tag by its own aggregation (last, mean, max, sum)."""
    if len(tables) == 1:  # nearly always
        return dict(tables[0])
    values: dict[str, list[float]] = {}
    for table in tables:
        for tag, value in table.items():
            values.setdefault(tag, []).append(value)
    return {tag: _combine(METRICS[tag], found) for tag, found in values.items()}


def _combine(metric: MetricSpec, values: list[float]) -> float:
    match metric.aggregation:
        case "last":
            return values[-1]
        case "max":
            return max(values)
        case "sum":
            return sum(values)
        case "mean":
            return sum(values) / len(values)


def _means(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    if len(tables) == 1:
        return dict(tables[0])
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    for table in tables:
        for tag, value in table.items():
            sums[tag] = sums.get(tag, 0.0) + value
            counts[tag] = counts.get(tag, 0) + 1
    return {tag: total / counts[tag] for tag, total in sums.items()}


def _unknown(what: str, tags: Iterable[str]) -> ValueError:
    return ValueError(f"collector report: unknown {what} key {', '.join(map(repr, sorted(tags)))}")
