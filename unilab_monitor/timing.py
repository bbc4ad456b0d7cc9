"""The rows of the two time lines, as data: what is shown, its milliseconds and its share.

The learner's rows are exclusive slices of Iter Wall. The collector's rows are shares of its cycle
(the sum of its phases); the measured wall of the cycle and the rest are given in ms only. The two
columns are different clocks and do not add up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from unilab_core.telemetry.metric_schema import (
    ALGOS,
    METRICS,
    collector_phases,
    details_of,
    in_ms,
    learner_phases,
)
from unilab_monitor.view import View

SHOWN_FROM_PCT = 1.0
"""Quiet rows of the collector appear from this share of the cycle."""

COLLECTOR_WAIT_ALARM_MS = 1.0

ENV_STEP = "Perf/collector_env_step_ms"
_COLLECTOR_WAIT = "Perf/learner_collector_wait_ms"
_LEARNING = "Perf/learning_time"
_ALWAYS = (
    "Perf/collector_mlp_infer_ms",
    "Perf/collector_learner_action_wait_ms",
    ENV_STEP,
    "Perf/collector_replay_write_ms",
)

Tree = Literal["none", "child", "last"]


@dataclass(kw_only=True, slots=True, frozen=True)
class TimingRow:
    """One row: `pct` is `None` where a share has no meaning; `total` rows close a column."""

    label: str
    ms: float | None
    pct: float | None = None
    tree: Tree = "none"
    style: str = "value"
    total: bool = False


def learner_rows(view: View) -> list[TimingRow]:
    """Phases in order, then Other, then Iter Wall with its fixed 100 %."""
    learner, algo = view.learner, view.facts.algo
    phases = learner_phases(algo) if algo in ALGOS else ()
    rows = []
    for spec in phases:
        value = learner.values.get(spec.tag)
        ms = None if value is None else in_ms(spec.tag, value)
        style = _learner_style(spec.tag, ms)
        rows.append(TimingRow(label=spec.label, ms=ms, pct=share(ms, learner.wall_ms), style=style))
    other = learner.other_ms
    rows.append(TimingRow(label="Other", ms=other, pct=share(other, learner.wall_ms), style="dim"))
    pct = None if learner.wall_ms is None else 100.0
    rows.append(
        TimingRow(label="Iter Wall", ms=learner.wall_ms, pct=pct, style="strong", total=True)
    )
    return rows


def collector_rows(view: View) -> list[TimingRow]:
    """Phases in order with their details, then what is left of the measured wall, and the wall."""
    collector, algo = view.collector, view.facts.algo
    values = collector.values
    phases = collector_phases(algo) if algo in ALGOS else ()
    tags = [spec.tag for spec in phases] or [tag for tag in _ALWAYS if algo in METRICS[tag].algos]
    rows: list[TimingRow] = []
    for tag in tags:
        pct = share(values.get(tag), collector.cycle_ms)
        if tag not in _ALWAYS and (pct is None or pct < SHOWN_FROM_PCT):
            continue
        rows.append(TimingRow(label=METRICS[tag].label, ms=values.get(tag), pct=pct))
        if tag == ENV_STEP:
            rows += _details(values, collector.cycle_ms)
    rollout_s = values.get("Perf/collection_time")
    if rollout_s is not None:
        rows.append(
            TimingRow(label="Rollout Wall", ms=rollout_s * 1000.0, style="strong", total=True)
        )
    if phases:
        rows.append(TimingRow(label="Other", ms=collector.other_ms, style="dim"))
        rows.append(TimingRow(label="Cycle Wall", ms=collector.wall_ms, style="strong", total=True))
    return rows


def share(ms: float | None, whole_ms: float | None) -> float | None:
    """Percent of a time line; `None` where either is unknown or the line is empty."""
    return None if ms is None or not whole_ms else 100.0 * ms / whole_ms


def _details(values: Mapping[str, float], cycle_ms: float | None) -> list[TimingRow]:
    shown = []
    for spec in details_of(ENV_STEP):
        pct = share(values.get(spec.tag), cycle_ms)
        if pct is not None and pct >= SHOWN_FROM_PCT:
            shown.append((spec, pct))
    # Whatever rows are hidden, the last visible one closes the tree.
    return [
        TimingRow(
            label=spec.label,
            ms=values[spec.tag],
            pct=pct,
            tree="last" if index == len(shown) - 1 else "child",
            style="child value",
        )
        for index, (spec, pct) in enumerate(shown)
    ]


def _learner_style(tag: str, ms: float | None) -> str:
    if ms is None:
        return "dim"
    if tag == _COLLECTOR_WAIT:
        return "bad" if ms > COLLECTOR_WAIT_ALARM_MS else "warn"
    return "good" if tag == _LEARNING else "value"
