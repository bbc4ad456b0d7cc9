"""``unilab-bench trace``: what writing RL traces costs a whole training job.

Every block is one short run of the real launcher, collector and learner, off and on in turn:

    off  on  off  on  ...  off

Each run with traces is compared with the mean of the two runs beside it; each run without traces
with the next one without, which is twice as far away in time. A shared machine drifts, so the
second difference is what the first has to be measured against.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unilab_core.tools.bench.alternating import alternate, differences_pct, slowdowns_pct
from unilab_core.tools.bench.launch import launch_run, read_summary
from unilab_core.tools.bench.report import BenchReport

START_LIMIT_S = 300.0
"""Start and end of a run, which the block does not include."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Figures of one run."""

    steps_per_s: float
    """Environment steps, over the whole training."""
    lines: int = 0
    dropped: int = 0
    bytes_per_s: float = 0.0


def run(
    *, algo: str, task: str, blocks: int, block_s: float, overrides: Sequence[str]
) -> BenchReport:
    """Measure.

    Args:
        algo: algorithm of the job.
        task: task of the job.
        blocks: runs with traces; there is one more without.
        block_s: length of each training, in s.
        overrides: settings for all runs.
    """

    def measure(traced: bool) -> Block:
        return _block(algo, task, block_s, [*overrides, f"training.rl_trace={traced}"])

    off, on = alternate(blocks, measure)
    row = {"algo": algo, "task": task, **compare(off, on)}
    return BenchReport(
        bench="trace",
        settings={"blocks": blocks, "block_s": block_s, "overrides": list(overrides)},
        rows=[row],
        ok=holds(row),
    )


def compare(off: Sequence[Block], on: Sequence[Block]) -> dict:
    """Both differences, in percent of the speed without traces; positive is slower."""
    speeds = [block.steps_per_s for block in off]
    traced = [block.steps_per_s for block in on]
    return {
        "off_steps_per_s": statistics.median(speeds),
        "on_steps_per_s": statistics.median(traced),
        "on_off_pct": statistics.median(slowdowns_pct(speeds, traced)),
        "off_off_pct": statistics.median(differences_pct(speeds)),
        "lines": sum(block.lines for block in on),
        "dropped": sum(block.dropped for block in on),
        "bytes_per_s": statistics.median(block.bytes_per_s for block in on),
        "off": speeds,
        "on": traced,
    }


def holds(row: dict) -> bool:
    """Whether the cost disappears in the difference between runs without traces."""
    return row["on_off_pct"] <= row["off_off_pct"] and row["lines"] > 0 and row["dropped"] == 0


def _block(algo: str, task: str, block_s: float, overrides: Sequence[str]) -> Block:
    with tempfile.TemporaryDirectory(prefix="unilab-bench-") as folder:
        settings = [f"training.max_wall_time_s={block_s}", "training.logger=none", *overrides]
        paths = launch_run(algo, task, Path(folder), settings, timeout_s=block_s + START_LIMIT_S)
        summary = read_summary(paths)
        wall_s = summary["training_wall_time_sec"]
        trace = summary["rl_trace"]
        counts = [] if trace is None else list(trace["lines"].values())
        root = paths.run_dir / "rl_trace"
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        return Block(
            steps_per_s=summary["total_env_steps"] / wall_s,
            lines=sum(count["written"] for count in counts),
            dropped=sum(count["dropped"] for count in counts),
            bytes_per_s=size / wall_s,
        )
