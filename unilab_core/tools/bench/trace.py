"""``unilab-bench trace``: what recording the timeline costs, in alternating blocks.

Every block is a training of its own, alternately without and with ``training.trace_enabled``; its
figure is the median Iter Wall after the first fifth. Beside the cost stands what two blocks without
it differ by: a cost below that is not distinguishable from none.

    off  on  off  on  off  ...  off
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from unilab_core.telemetry.event_file import read_scalars
from unilab_core.tools.bench.launch import launch_run
from unilab_core.tools.bench.report import BenchReport

PROMISED_PCT = 3.0
SKIPPED_SHARE = 0.2
START_S = 180.0
"""Longest start of a block."""


def run(
    *, algo: str, task: str, pairs: int, block_s: float, overrides: Sequence[str] = ()
) -> BenchReport:
    """Train ``2 * pairs + 1`` blocks; one row per block with the timeline."""
    off = [_block(algo, task, block_s, overrides, traced=False)]
    on: list[dict] = []
    for _ in range(pairs):
        on.append(_block(algo, task, block_s, overrides, traced=True))
        off.append(_block(algo, task, block_s, overrides, traced=False))
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
            }
        )
    cost = statistics.median(row["cost_pct"] for row in rows)
    spread = statistics.median(abs(row["off_against_off_pct"]) for row in rows)
    return BenchReport(
        bench="trace",
        settings={
            "algo": algo,
            "task": task,
            "block_s": block_s,
            "overrides": list(overrides),
            "promise_pct": PROMISED_PCT,
            "median_cost_pct": cost,
            "median_off_against_off_pct": spread,
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
    kept = walls_s[int(len(walls_s) * SKIPPED_SHARE) :]
    return {
        "iter_wall_ms": 1e3 * statistics.median(kept),
        "iterations": len(kept),
        "trace_mib": size / 2**20,
    }
