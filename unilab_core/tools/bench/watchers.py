"""``unilab-bench watchers``: what those who look at a training cost it.

One job trains all the time. Watchers of one kind after the other look at it in every second block,
so that a block with them stands between two without:

    off  on  off  on  ...  off

    reader     one that has attached to the metric ring and has been stopped there: it never reads
               again, its place in the ring is overrun
    monitors   five monitors, each drawing on a terminal of its own
    storm      a process that attaches to board and rings and lets go of them, 50 times a second

The speed of a block comes from the first iteration record after its begin and the newest one at its
end, so an iteration that crosses an edge does not count in part. Beside the cost stands what two
blocks without watchers differ by, and what the watchers take of one core: on a machine whose cores
the job fills, that much is missing elsewhere. ``--apart`` keeps the watchers to a core that the job
does not use; what is left is what looking itself costs. How long the job's processes were computing
for a step is shown, too: on a shared machine that varies less than how long they took.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from unilab_core.config.errors import ConfigError
from unilab_core.run.job_segments import open_ring
from unilab_core.telemetry.records import IterationReport, RecordError, parse_record
from unilab_core.tools.bench.alternating import alternate, differences_pct, slowdowns_pct
from unilab_core.tools.bench.launch import (
    LaunchFailedError,
    launcher_command,
    registry_at,
    running_launcher,
)
from unilab_core.tools.bench.report import BenchReport
from unilab_core.tools.bench.watcher_processes import (
    ATTACHES_PER_S,
    JOB,
    START_S,
    WATCHERS,
    Watchers,
    launch_record,
    until,
)
from unilab_core.tools.soak.sampling import descendants
from unilab_ipc.errors import IpcError
from unilab_ipc.metric_queue import RingReader
from unilab_ipc.peers import process_cpu_s
from unilab_ipc.registry import JobFolder

PROMISED_PCT = 1.0
LEAST_SHOWN_PER_S = {"reader": 0.0, "monitors": 1.0, "storm": ATTACHES_PER_S / 2.0}
"""`Block.shown_per_s` below which watchers did not watch as they should."""
SHORTEST_BLOCK_S = 2.5
"""A monitor for which pictures are dear draws one in 2 s."""
LONGEST_ITERATION_S = 5.0
"""An allowance in the limit that ends the job if this process is killed."""
SETTLE_S = 0.5
"""After watchers have been let go: what they have missed is read before the block begins."""
WARM_S = 5.0
"""After the first iteration, before the first block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Figures of one block."""

    steps_per_s: float
    cpu_us_per_step: float = 0.0
    """What the job's processes took for an environment step, in microseconds of processor time."""
    cpu_pct: float = 0.0
    """What the watchers took of one core."""
    shown_per_s: float = 0.0
    """Bytes that monitors have drawn, or attachments of the storm."""


def run(
    *,
    algo: str,
    task: str,
    blocks: int,
    block_s: float,
    kinds: Sequence[str] = tuple(WATCHERS),
    apart: bool = False,
    overrides: Sequence[str] = (),
) -> BenchReport:
    """Measure.

    Args:
        algo: algorithm of the job.
        task: task of the job.
        blocks: blocks with watchers, for each kind; there is one more without.
        block_s: length of a block, in s.
        kinds: which of `WATCHERS`, in this order.
        apart: watchers run on the last core and the job on the others, so that the processor
            time that watchers need is not taken from the job.
        overrides: settings of the job.

    Raises:
        ConfigError: a number that measures nothing.
        LaunchFailedError: the job has failed.
    """
    if blocks < 1:  # before a job is started for it
        raise ConfigError(f"--blocks: got {blocks}, expected at least 1")
    if block_s < SHORTEST_BLOCK_S:
        raise ConfigError(f"--block-s: got {block_s:g}, expected at least {SHORTEST_BLOCK_S:g}")
    cores = sorted(os.sched_getaffinity(0))
    if apart and len(cores) < 2:
        raise ConfigError(f"--apart: got {len(cores)} core, expected at least 2")
    per_kind_s = START_S + (2 * blocks + 1) * (SETTLE_S + block_s + LONGEST_ITERATION_S)
    limit_s = START_S + WARM_S + len(kinds) * per_kind_s
    settings = [f"training.max_wall_time_s={limit_s}", *overrides]
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="unilab-bench-") as folder,
        _metered_training(
            algo, task, Path(folder), settings, cores[:-1] if apart else cores
        ) as meter,
        _on_cores(cores[-1:] if apart else cores),
    ):
        for kind in kinds:
            with WATCHERS[kind]() as watchers:
                measure = partial(_block, meter, watchers, block_s)
                off, on = alternate(blocks, measure)
            rows.append({"watchers": kind, **compare(off, on)})
    return BenchReport(
        bench="watchers",
        settings={
            "algo": algo,
            "task": task,
            "blocks": blocks,
            "block_s": block_s,
            "apart": apart,
            "overrides": list(overrides),
            "promise_pct": PROMISED_PCT,
        },
        rows=rows,
        ok=all(holds(row) for row in rows),
    )


def compare(off: Sequence[Block], on: Sequence[Block]) -> dict:
    """One row: medians, and every speed in `off` and `on` (environment steps per s).

    `cost_pct` is how much slower blocks with watchers are than the mean of the two beside them,
    `off_off_pct` what neighbours without watchers differ by; `job_cpu_cost_pct` and
    `job_cpu_off_off_pct` are the same of steps per processor time of the job. `cpu_pct` and
    `shown_per_s` are those of `Block`, of the blocks with watchers.
    """
    speeds, watched = [[block.steps_per_s for block in blocks] for blocks in (off, on)]
    per_cpu, watched_per_cpu = [
        [1e6 / block.cpu_us_per_step for block in blocks] for blocks in (off, on)
    ]
    return {
        "off_steps_per_s": statistics.median(speeds),
        "on_steps_per_s": statistics.median(watched),
        "cost_pct": statistics.median(slowdowns_pct(speeds, watched)),
        "off_off_pct": statistics.median(differences_pct(speeds)),
        "job_cpu_cost_pct": statistics.median(slowdowns_pct(per_cpu, watched_per_cpu)),
        "job_cpu_off_off_pct": statistics.median(differences_pct(per_cpu)),
        "cpu_pct": statistics.median(block.cpu_pct for block in on),
        "shown_per_s": statistics.median(block.shown_per_s for block in on),
        "off": speeds,
        "on": watched,
        "off_job_cpu_us_per_step": [block.cpu_us_per_step for block in off],
        "on_job_cpu_us_per_step": [block.cpu_us_per_step for block in on],
    }


def holds(row: dict) -> bool:
    """Whether the job was slower by no more than promised while the watchers really watched."""
    watched = row["shown_per_s"] >= LEAST_SHOWN_PER_S[row["watchers"]]
    return watched and row["cost_pct"] <= PROMISED_PCT


def _block(meter: Meter, watchers: Watchers, block_s: float, watched: bool) -> Block:
    if watched:
        watchers.wake()
    time.sleep(SETTLE_S)
    meter.newest(after_ns=0)  # reads what has piled up, before the clock starts
    shown, cpu_s, start_s = watchers.shown(), watchers.cpu_s(), time.monotonic()
    steps_per_s, cpu_us_per_step = meter.measure(block_s)
    wall_s = time.monotonic() - start_s
    block = Block(
        steps_per_s=steps_per_s,
        cpu_us_per_step=cpu_us_per_step,
        cpu_pct=100.0 * (watchers.cpu_s() - cpu_s) / wall_s,
        shown_per_s=(watchers.shown() - shown) / wall_s,
    )
    if watched:
        watchers.rest()
    return block


class Meter:
    """Reads the iteration records of the job, at the edges of the blocks only."""

    def __init__(self, reader: RingReader, launcher: subprocess.Popen) -> None:
        self._reader = reader
        self._launcher = launcher
        self._newest: IterationReport | None = None

    def measure(self, block_s: float) -> tuple[float, float]:
        """From the next iteration on until the one that is there `block_s` later.

        Returns:
            Environment steps per s, and microseconds of the job's processor time per step.
        """
        start = self.newest(after_ns=time.monotonic_ns())
        start_cpu_s = self._job_cpu_s()
        time.sleep(block_s)
        end = self.newest(after_ns=start.t_ns + round(block_s * 1e9))
        steps, cpu_s = end.env_steps - start.env_steps, self._job_cpu_s() - start_cpu_s
        return steps / (end.t_ns - start.t_ns) * 1e9, 1e6 * cpu_s / steps

    def _job_cpu_s(self) -> float:
        pids = [self._launcher.pid, *(row.pid for row in descendants(self._launcher.pid))]
        return sum(process_cpu_s(pid) for pid in pids)

    def newest(self, *, after_ns: int) -> IterationReport:
        """The last iteration; waits for one that ended after `after_ns`."""

        def is_there() -> bool:
            self._read()
            return self._newest is not None and self._newest.t_ns > after_ns

        until(is_there, "an iteration", self._launcher)
        assert self._newest is not None
        return self._newest

    def _read(self) -> None:
        while records := self._reader.read():
            for record in records:
                try:
                    report = parse_record(record)
                except RecordError:
                    continue
                if isinstance(report, IterationReport) and report.iteration > 0:
                    self._newest = report


@contextmanager
def _metered_training(
    algo: str, task: str, folder: Path, overrides: Sequence[str], cores: Sequence[int]
) -> Iterator[Meter]:
    """A job on these cores that trains until it is no longer needed, past its first seconds."""
    settings = ["algo.max_iterations=1000000000", "training.logger=none", *overrides]
    command = launcher_command(algo, task, folder / "run", settings, job=JOB)
    log = folder / "launcher.log"
    with ExitStack() as stack:
        stack.enter_context(registry_at(folder / "registry"))
        with _on_cores(cores):
            launcher = stack.enter_context(running_launcher(command, log))
        try:
            until(_is_attachable, "a job", launcher)
            segment = open_ring(launch_record(), "learner", readonly=True)
            try:
                meter = Meter(RingReader(segment), launcher)
                meter.newest(after_ns=0)
                time.sleep(WARM_S)
                yield meter
            finally:
                segment.close()
        except RuntimeError as error:
            if launcher.poll() is not None:
                raise LaunchFailedError(log, launcher.returncode) from error
            raise


@contextmanager
def _on_cores(cores: Sequence[int]) -> Iterator[None]:
    """This process, and what it starts meanwhile, runs on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _is_attachable() -> bool:
    try:
        return JobFolder.open(JOB).read_json("job.json") is not None
    except IpcError:
        return False
