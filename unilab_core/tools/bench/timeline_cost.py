"""``unilab-bench timeline-cost``: what recording the timeline costs, in alternating blocks.

Every block is a training of its own, alternately without and with ``training.trace_enabled``; its
figure is the median Iter Wall after the first fifth. Beside the cost stands what two blocks without
it differ by: a cost below that is not distinguishable from none.

    off  on  off  on  off  ...  off

Where a machine is too noisy for that, two figures bound the cost from above, as shares of one core:
the CPU time of the thread that writes (the trace has it, the busier role counts) and the time that
recording takes in the loop (slices of a cycle times the measured time of one).
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unilab_core.telemetry.event_file import read_scalars
from unilab_core.telemetry.phase_timer import PhaseTimer
from unilab_core.telemetry.timeline.files import timeline_files
from unilab_core.telemetry.timeline.packets import ProcessId
from unilab_core.telemetry.timeline.reader import CounterValue, TimelineReader
from unilab_core.telemetry.timeline.recorder import WRITER_CPU, CpuTimes, TraceRecorder
from unilab_core.telemetry.timeline.session import flow_id
from unilab_core.telemetry.timeline.traced_timer import TracedTimer
from unilab_core.tools.bench.alternating import alternate
from unilab_core.tools.bench.launch import launch_run
from unilab_core.tools.bench.report import BenchReport

PROMISED_PCT = 3.0
SKIPPED_SHARE = 0.2
MICRO_LAPS = 50_000
START_S = 180.0
"""Longest start of a block."""


def run(
    *, algo: str, task: str, pairs: int, block_s: float, overrides: Sequence[str] = ()
) -> BenchReport:
    """Train ``2 * pairs + 1`` blocks; one row per block with the timeline."""
    off, on = alternate(pairs, lambda traced: _block(algo, task, block_s, overrides, traced=traced))
    rows = []
    for index, block in enumerate(on):
        before, after = off[index]["iter_wall_ms"], off[index + 1]["iter_wall_ms"]
        between = (before + after) / 2.0
        rows.append(
            {
                "off_ms": between,
                "on_ms": block["iter_wall_ms"],
                "cost_pct": 100.0 * (block["iter_wall_ms"] / between - 1.0),
                "off_against_off_pct": 100.0 * (after / before - 1.0),
                "iterations": block["iterations"],
                "trace_mib": block["trace_mib"],
                "writer_pct": block["writer_pct"],
                "record_pct": block["record_pct"],
            }
        )
    cost = statistics.median(row["cost_pct"] for row in rows)
    spread = statistics.median(abs(row["off_against_off_pct"]) for row in rows)
    return BenchReport(
        bench="timeline-cost",
        settings={
            "algo": algo,
            "task": task,
            "block_s": block_s,
            "overrides": list(overrides),
            "promise_pct": PROMISED_PCT,
            "median_cost_pct": cost,
            "median_off_against_off_pct": spread,
            "largest_bound_pct": max(row["writer_pct"] + row["record_pct"] for row in rows),
        },
        rows=rows,
        ok=cost <= PROMISED_PCT,
    )


def _block(algo: str, task: str, block_s: float, overrides: Sequence[str], *, traced: bool) -> dict:
    settings = [
        "algo.max_iterations=1000000000",
        f"training.max_wall_time_s={block_s}",
        f"training.trace_enabled={str(traced).lower()}",
        *overrides,
    ]
    with tempfile.TemporaryDirectory(prefix="unilab-bench-") as folder:
        run = launch_run(algo, task, Path(folder), settings, timeout_s=block_s + START_S)
        walls_s = [value for _, value in read_scalars(run.run_dir)["Perf/iteration_time"]]
        size = sum(path.stat().st_size for path in run.run_dir.glob("trace/*"))
        load = _load(timeline_files(run.run_dir)) if traced else _Load()
    kept = walls_s[int(len(walls_s) * SKIPPED_SHARE) :]
    return {
        "iter_wall_ms": 1e3 * statistics.median(kept),
        "iterations": len(kept),
        "trace_mib": size / 2**20,
        "writer_pct": load.writer_pct,
        "record_pct": load.record_pct,
    }


@dataclass(kw_only=True, slots=True, frozen=True)
class _Load:
    """Shares of one core that a timeline took in the busier role, in %."""

    writer_pct: float = 0.0
    record_pct: float = 0.0


def _load(files: Sequence[Path]) -> _Load:
    """From the timeline itself, and the time that recording one event takes here."""
    writer_ms: dict[str, float] = {}
    num_events: dict[str, int] = {}
    first_ns: dict[str, int] = {}
    last_ns: dict[str, int] = {}
    for event in TimelineReader(files).events():
        role = event.track.process
        if isinstance(event, CounterValue):
            time_ns = event.time_ns
            if event.track.name == WRITER_CPU:
                writer_ms[role] = event.value
        else:
            time_ns = event.end_ns
        num_events[role] = num_events.get(role, 0) + 1
        first_ns.setdefault(role, time_ns)
        last_ns[role] = time_ns
    event_ns = _event_ns()
    spans_ns = {role: max(last_ns[role] - first_ns[role], 1) for role in num_events}
    return _Load(
        writer_pct=max(
            100.0 * writer_ms.get(role, 0.0) * 1e6 / spans_ns[role] for role in spans_ns
        ),
        record_pct=max(100.0 * num_events[role] * event_ns / spans_ns[role] for role in spans_ns),
    )


def _event_ns() -> float:
    """What a lap costs more with the timeline than without, handlers and arrows included."""
    with tempfile.TemporaryDirectory(prefix="unilab-bench-") as folder:
        process = ProcessId(name="bench", pid=1, sequence=1)
        recorder = TraceRecorder(Path(folder) / "bench.pftrace", process, flush_interval_s=3600.0)
        lane = recorder.thread_lane("bench")

        def handle(start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
            flows = (flow_id("tick", 0, start_ns & 0xFFFF),)
            lane.slice("phase", start_ns, end_ns, tag="tag", flows=flows, cpu=cpu)

        traced = _lap_ns(TracedTimer(["phase"], {"phase": handle}, lambda *_: None))
        plain = _lap_ns(PhaseTimer(["phase"]))
        recorder.close()
    return max(traced - plain, 0.0)


def _lap_ns(timer: PhaseTimer) -> float:
    timer.start_cycle()
    start_ns = time.perf_counter_ns()
    for _ in range(MICRO_LAPS):
        timer.lap("phase")
    return (time.perf_counter_ns() - start_ns) / MICRO_LAPS
