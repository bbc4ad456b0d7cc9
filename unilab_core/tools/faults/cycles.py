"""``unilab-bench cycles``: one process runs the launcher again and again; does anything grow?

A launcher that is its own process cannot leak beyond its end, so its leaks would show nowhere. Here
the launcher's code runs in this process, children as always in their own: whatever a run fails to
give back (a descriptor, a thread, a mapping, memory, a name in /dev/shm, a child not reaped) stays
and adds up. The first rounds are not counted: caches and imports fill then.
"""

from __future__ import annotations

import gc
import io
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from unilab_core.launch.console import Console
from unilab_core.launch.run_command import RunOptions, run_training
from unilab_core.tools.bench.launch import registry_at
from unilab_core.tools.bench.report import BenchReport
from unilab_core.tools.faults.audit import leftovers, shared_names
from unilab_core.tools.faults.tiny_job import JOB, TASK, TinyJob
from unilab_core.tools.soak.sampling import descendants, read_process
from unilab_ipc.memory import SHM_DIR

WARM_UP_FRACTION = 0.2
RSS_LIMIT_KIB = 8.0
"""Per cycle: what an allocator may wander; a leaked mapping of the smallest ring is 1024."""
QUANTITIES = ("fds", "threads", "rss_kib", "mappings", "shm_names", "children")


@dataclass(kw_only=True, slots=True, frozen=True)
class Sample:
    """What this process holds after a cycle."""

    cycle: int
    exit_code: int
    wall_s: float
    fds: int
    threads: int
    rss_kib: int
    mappings: int
    """Lines of /proc/self/maps that lie in /dev/shm."""
    shm_names: int
    """Names of runs of this process's jobs."""
    children: int


def run(*, rounds: int, limit_s: float, algo: str, out: Path | None = None) -> BenchReport:
    """Run up to `rounds` cycles, or as many as fit into `limit_s`."""
    samples: list[Sample] = []
    left: list[str] = []
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="unilab-cycles-") as folder:
        job = TinyJob(folder=Path(folder), algo=algo)
        job.registry.mkdir(mode=0o700)
        with registry_at(job.registry):
            while len(samples) < rounds and time.monotonic() - began_s < limit_s:
                samples.append(_cycle(job, len(samples)))
                _show(samples[-1], rounds)
            left = [text for text in leftovers(job) if "process" not in text]
    rows = slopes(samples)
    report = BenchReport(
        bench="cycles",
        settings={"rounds": len(samples), "algo": algo, "asked": rounds, "left": left},
        rows=rows,
        ok=bool(rows)
        and all(row["flat"] for row in rows)
        and all(sample.exit_code == 0 for sample in samples)
        and not left,
    )
    if out is not None:
        report.write(out, samples=[asdict(sample) for sample in samples])
    return report


def slopes(samples: Sequence[Sample]) -> list[dict]:
    """One row per quantity: first, last, straight-line slope per cycle after the warm-up.

    Memory is flat if it is so in one half of the cycles: what leaks does so in every cycle, while
    one step may be a library that was loaded late.
    """
    counted = samples[int(len(samples) * WARM_UP_FRACTION) :]
    if len(counted) < 4:
        return []
    rows = []
    for name in QUANTITIES:
        values = np.array([getattr(sample, name) for sample in counted], float)
        slope = _slope(values)
        halves = [_slope(half) for half in np.array_split(values, 2)]
        flat = min(halves) <= RSS_LIMIT_KIB if name == "rss_kib" else bool(values[-1] <= values[0])
        rows.append(
            {
                "quantity": name,
                "first": values[0],
                "last": values[-1],
                "highest": values.max(),
                "slope_per_cycle": round(slope, 4),
                "slope_of_halves": [round(half, 4) for half in halves],
                "flat": flat,
            }
        )
    return rows


def _slope(values: np.ndarray) -> float:
    """Of the straight line through values[N], per value."""
    return float(np.polyfit(np.arange(len(values)), values, 1)[0])


def _cycle(job: TinyJob, cycle: int) -> Sample:
    words = [word for word in job.command(()) if "=" in word]
    options = RunOptions(
        algo=job.algo, task=TASK, sim=None, overrides=tuple(words), job=JOB, plain=True
    )
    lines = io.StringIO()
    start_s = time.monotonic()
    code = run_training(options, Console(lines, lines), os.environ)
    wall_s = time.monotonic() - start_s
    if code != 0:
        print(lines.getvalue()[-2000:], file=sys.stderr)
    gc.collect()
    own = read_process(os.getpid())
    assert own is not None
    return Sample(
        cycle=cycle,
        exit_code=code,
        wall_s=round(wall_s, 3),
        fds=len(os.listdir("/proc/self/fd")),
        threads=own.num_threads,
        rss_kib=own.rss_kib,
        mappings=sum(SHM_DIR in line for line in Path("/proc/self/maps").read_text().splitlines()),
        shm_names=len(shared_names(job)),
        children=len(descendants(os.getpid())),
    )


def _show(sample: Sample, rounds: int) -> None:
    figures = ", ".join(f"{name} {getattr(sample, name)}" for name in QUANTITIES)
    print(
        f"[{sample.cycle + 1}/{rounds}] exit {sample.exit_code}, {sample.wall_s} s: {figures}",
        file=sys.stderr,
        flush=True,
    )
