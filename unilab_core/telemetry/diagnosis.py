"""Where the time goes: the six-row bottleneck table as a pure function from figures to findings.

The figures are window means (`window.SampleWindow.means`) of the two time lines. A share is a
phase's time over its own time line: Iter Wall for the learner, the cycle for the collector. The
two time lines run in parallel, so shares of different sides are never added.

The same rows make the Diagnosis line of the panel, `diagnosis` of `--json`, and a table in
docs/metrics.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from unilab_core.telemetry.metric_schema import METRICS, in_ms

COLLECTOR_WAIT = "Perf/learner_collector_wait_ms"
ACTION_WAIT = "Perf/collector_learner_action_wait_ms"
INFERENCE = "Perf/learner_inference_ms"
BATCH_WAIT = "Perf/learner_replay_batch_wait_ms"
REPLAY_WRITE = "Perf/collector_replay_write_ms"
H2D_SUBMIT = "Perf/replay_ingress_h2d_submit_ms"

# Sums of float milliseconds differ from their wall by rounding, not by a fault.
ALARM_TOLERANCE_MS = 0.001
ALARM_TOLERANCE_FRAC = 1e-6


@dataclass(kw_only=True, slots=True, frozen=True)
class BottleneckRow:
    """One symptom: when the share of `tag` is at least `high_frac`."""

    tag: str
    side: Literal["learner", "collector"]
    high_frac: float
    symptom: str
    meaning: str
    check: str


BOTTLENECKS: tuple[BottleneckRow, ...] = (
    BottleneckRow(
        tag=COLLECTOR_WAIT,
        side="learner",
        high_frac=0.10,
        symptom="learner Collector Wait high",
        meaning="the learner is ready before the collector's request or data",
        check="env step, transition post-processing, a living collector, IPC",
    ),
    BottleneckRow(
        tag=ACTION_WAIT,
        side="collector",
        high_frac=0.25,
        symptom="collector Learner Action Wait high while learner Collector Wait is low",
        meaning="the collector arrives first and waits until the learner ends its update",
        check="Learning, updates per step, batch size; then the three inference details",
    ),
    BottleneckRow(
        tag=INFERENCE,
        side="learner",
        high_frac=0.20,
        symptom="learner Inference high",
        meaning="answering the collector is slow in itself",
        check="the details h2d, forward and d2h",
    ),
    BottleneckRow(
        tag=BATCH_WAIT,
        side="learner",
        high_frac=0.05,
        symptom="learner Replay Batch Wait high",
        meaning="the prefetched batch is not ready when the learner wants it",
        check="ingress commit, the gather beside the update, competition for the device",
    ),
    BottleneckRow(
        tag=REPLAY_WRITE,
        side="collector",
        high_frac=0.10,
        symptom="collector Replay Write high",
        meaning="writing transitions into the bounded ingress is slow",
        check="whether ingress slots run out, whether the learner's commit lags",
    ),
    BottleneckRow(
        tag=H2D_SUBMIT,
        side="learner",
        high_frac=0.10,
        symptom="Replay H2D Submit high while the learner's phases are normal",
        meaning="a background figure grew; the iteration is not longer by that time",
        check="device copies, ingress commit and their overlap in a Perfetto trace",
    ),
)


@dataclass(kw_only=True, slots=True, frozen=True)
class Finding:
    """One row that applies now."""

    finding: str
    check: str
    weight: float
    """Share of its time line that the row stands for; 0 for the background row."""
    tag: str


def diagnose(learner: Mapping[str, float], collector: Mapping[str, float]) -> tuple[Finding, ...]:
    """Findings of the moment, heaviest first; empty when nothing stands out or nothing is known.

    `learner` holds Perf tags and `wall_ms`; `collector` Perf tags and `cycle_ms`.
    """
    learner_total_ms = learner.get("wall_ms")
    shares = {
        row.tag: _share(row.tag, learner, learner_total_ms)
        if row.side == "learner"
        else _share(row.tag, collector, collector.get("cycle_ms"))
        for row in BOTTLENECKS
    }
    high = {row.tag for row in BOTTLENECKS if shares[row.tag] >= row.high_frac}
    if COLLECTOR_WAIT in high:
        # Both sides wait: the learner's row names the cause, the collector's would mislead.
        high.discard(ACTION_WAIT)
    if high & {COLLECTOR_WAIT, INFERENCE, BATCH_WAIT}:
        high.discard(H2D_SUBMIT)
    found = [_finding(row, shares[row.tag]) for row in BOTTLENECKS if row.tag in high]
    return tuple(sorted(found, key=lambda finding: -finding.weight))


def contract_alarm(accounted_ms: float | None, wall_ms: float | None) -> str | None:
    """A sentence when exclusive phases add up to more than their wall: a fault in the timing."""
    if accounted_ms is None or wall_ms is None:
        return None
    if accounted_ms <= wall_ms + ALARM_TOLERANCE_MS + wall_ms * ALARM_TOLERANCE_FRAC:
        return None
    share = f"{100.0 * accounted_ms / wall_ms:.1f} %" if wall_ms > 0 else "more than 100 %"
    return (
        f"timing contract broken: exclusive phases add up to {share} of Iter Wall"
        f" ({accounted_ms:.3f} of {wall_ms:.3f} ms)"
    )


def render_table() -> str:
    """The bottleneck table as Markdown."""
    lines = ["| symptom | from | direct meaning | look first at |", "|---|---|---|---|"]
    for row in BOTTLENECKS:
        limit = f"{row.high_frac:.0%} of {_time_line(row)}"
        lines.append(f"| {row.symptom} | {limit} | {row.meaning} | {row.check} |")
    return "\n".join(lines)


def _share(tag: str, figures: Mapping[str, float], total_ms: float | None) -> float:
    value = figures.get(tag)
    if value is None or total_ms is None or not total_ms > 0.0:
        return 0.0
    return in_ms(tag, value) / total_ms


def _finding(row: BottleneckRow, share: float) -> Finding:
    label = METRICS[row.tag].label
    return Finding(
        finding=f"{label} {share:.0%} of {_time_line(row)}: {row.meaning}",
        check=row.check,
        weight=0.0 if METRICS[row.tag].part == "background" else share,
        tag=row.tag,
    )


def _time_line(row: BottleneckRow) -> str:
    return "Iter Wall" if row.side == "learner" else "the cycle"
