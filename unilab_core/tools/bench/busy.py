"""``unilab-bench busy``: a training beside processes that take every core they can get.

The promise: on a busy host nothing is taken for a standstill. The run must come to its end by its
own clock with exit code 0, and the launcher must not have said once that a process stands still.
The limits are the defaults of a run (10 s to the warning, 60 s to the hang), not eased for this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from unilab_core.config.errors import ConfigError
from unilab_core.tools.bench.launch import launch_run, read_summary
from unilab_core.tools.bench.report import BenchReport

START_AND_END_S = 900.0
"""Longest start and end of the run: importing torch takes its time on a busy host."""
ALARM_WORDS = ("no progress for", "goes on after")
"""What the supervisor says when it warns, gives up, or takes a warning back."""


def run(
    *, minutes: float, spinners: int, algo: str, task: str, overrides: Sequence[str]
) -> BenchReport:
    """Train for ``minutes`` beside ``spinners`` processes.

    Args:
        minutes: length of the training.
        spinners: processes that spin.
        algo: algorithm of the job.
        task: task of the job.
        overrides: further settings of the run.
    """
    if minutes <= 0:
        raise ConfigError(f"--minutes: got {minutes:g}, expected more than 0")
    if spinners < 1:
        raise ConfigError(f"--spinners: got {spinners}, expected at least 1")
    train_s = minutes * 60.0
    settings = [f"training.max_wall_time_s={train_s}", "training.logger=none", *overrides]
    with tempfile.TemporaryDirectory(prefix="unilab-bench-") as name:
        folder = Path(name)
        with _spinning(spinners) as spun:
            try:
                paths = launch_run(
                    algo, task, folder, settings, timeout_s=train_s + START_AND_END_S
                )
            except RuntimeError as error:  # what the launcher said last
                failure: str | None = str(error)
                summary: dict = {}
            else:
                failure, summary = None, read_summary(paths)
            still_spinning = spun()
        alarms = alarm_lines(folder / "launcher.log")
    row = {
        "algo": algo,
        "train_s": summary.get("training_wall_time_sec"),
        "iterations": summary.get("completed_iterations"),
        "env_steps": summary.get("total_env_steps"),
        "steps_per_s": summary.get("final_env_steps_per_sec"),
        "spinners": still_spinning,
        "load_1min": os.getloadavg()[0],
        "alarms": len(alarms),
        "alarm_lines": alarms[:20],
        "failure": failure,
    }
    return BenchReport(
        bench="busy",
        settings={"minutes": minutes, "spinners": spinners, "overrides": list(overrides)},
        rows=[row],
        ok=holds(row, spinners),
    )


def holds(row: dict, spinners: int) -> bool:
    """Whether the run came to its end without an alarm while every spinner was spinning."""
    quiet = row["failure"] is None and row["alarms"] == 0
    return quiet and row["spinners"] == spinners and (row["iterations"] or 0) > 0


def alarm_lines(log: Path) -> list[str]:
    """Lines of the launcher that speak of a standstill."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line for line in lines if any(word in line for word in ALARM_WORDS)]


@contextmanager
def _spinning(count: int) -> Iterator[Callable[[], int]]:
    """Processes in an endless loop; yields a function that counts those that still run."""
    command = [sys.executable, "-m", __name__, str(os.getpid())]
    started = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield lambda: sum(process.poll() is None for process in started)
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def _spin(parent: int) -> None:
    """Take a whole core until killed; a benchmark that was killed takes its spinners along."""
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


if __name__ == "__main__":
    _spin(int(sys.argv[1]))
