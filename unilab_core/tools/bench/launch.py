"""Start the real launcher for a benchmark and read what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from unilab_core.run.json_files import read_json
from unilab_core.run.run_dir import RunPaths
from unilab_ipc.registry import RUNTIME_DIR_VARIABLE

STOP_GRACE_S = 30.0
"""How long a launcher may take to stop its children and save, before it is killed."""


class LaunchFailedError(RuntimeError):
    """The launcher of a benchmark has failed; the message holds its last line."""

    def __init__(self, log: Path, exit_code: int) -> None:
        lines = log.read_text(errors="replace").strip().splitlines() or ["no output"]
        super().__init__(f"unilab-launch ended with exit code {exit_code}: {lines[-1]}")


def launcher_command(
    algo: str, task: str, run_dir: Path, overrides: Sequence[str], *, job: str | None = None
) -> list[str]:
    """A training without film and export, for benchmarks."""
    command = [sys.executable, "-m", "unilab_core.launch", "--plain", "--algo", algo]
    command += ["--task", task] if job is None else ["--task", task, "--job", job]
    command += [f"training.log_dir={run_dir}", "training.no_play=true"]
    return [*command, "training.export_onnx=false", *overrides]


def launch_run(
    algo: str, task: str, folder: Path, overrides: Sequence[str], *, timeout_s: float
) -> RunPaths:
    """Train to the end in ``folder / "run"``; output goes to ``folder / "launcher.log"``.

    Raises:
        LaunchFailedError: the launcher failed.
        subprocess.TimeoutExpired: it took longer than ``timeout_s``.
    """
    run_dir = folder / "run"
    command = launcher_command(algo, task, run_dir, overrides)
    log = folder / "launcher.log"
    with registry_at(folder / "registry"), running_launcher(command, log) as launcher:
        exit_code = launcher.wait(timeout=timeout_s)
    if exit_code != 0:
        raise LaunchFailedError(log, exit_code)
    return RunPaths(run_dir)


@contextmanager
def running_launcher(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A launcher that writes to ``log`` and is stopped at the end of the block if it still runs."""
    with log.open("wb") as output:
        launcher = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield launcher
        finally:  # also when the benchmark itself is stopped: a training must not outlive it
            _stop(launcher)


@contextmanager
def registry_at(path: Path) -> Iterator[None]:
    """A registry of one's own: jobs in it meet none of the user's."""
    before = os.environ.get(RUNTIME_DIR_VARIABLE)
    os.environ[RUNTIME_DIR_VARIABLE] = str(path)
    try:
        yield
    finally:
        if before is None:
            del os.environ[RUNTIME_DIR_VARIABLE]
        else:
            os.environ[RUNTIME_DIR_VARIABLE] = before


def _stop(launcher: subprocess.Popen[bytes]) -> None:
    """End a launcher that still runs: it stops its children and removes its names."""
    launcher.terminate()  # nothing happens to a process that has ended
    try:
        launcher.wait(timeout=STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait()


def read_summary(run: RunPaths) -> dict:
    """``run_summary.json`` of a finished run.

    Raises:
        RuntimeError: it is missing or damaged.
    """
    summary = read_json(run.summary)
    if summary is None:
        raise RuntimeError(f"{run.summary}: missing or damaged")
    return summary
