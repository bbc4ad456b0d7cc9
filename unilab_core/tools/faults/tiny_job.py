"""The smallest real job of each algorithm: three real processes that train for a moment.

Pendulum with two copies and networks of eight units: the imports take most of the time. Each job
has a registry of its own, so that jobs run side by side and every process of one is known by its
environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unilab_core.run.faults import VARIABLE
from unilab_core.run.json_files import read_json
from unilab_core.run.run_dir import RunPaths
from unilab_ipc.registry import RUNTIME_DIR_VARIABLE

TASK = "gym:Pendulum-v1"
JOB = "faults"
ENDLESS = 1_000_000_000

WARN_S = 1.0
HANG_S = 2.0
STARTUP_HANG_S = 15.0
SHORT_LIMITS = (
    f"training.warn_after_s={WARN_S}",
    f"training.hang_after_s={HANG_S}",
    f"training.startup_hang_after_s={STARTUP_HANG_S}",
)
"""Hang limits for cases that stand still, so that they do not take minutes."""

_COMMON = ("training.no_play=true", "training.export_onnx=false", "algo.num_envs=2")
_ON_POLICY = (
    "algo.num_mini_batches=2",
    "algo.num_learning_epochs=1",
    "algo.hidden_dims=[8]",
    "algo.save_interval=5",
    "algo.max_iterations=20",
)
SETTINGS: dict[str, tuple[str, ...]] = {
    "sac": (
        "algo.batch_size=64",
        "algo.updates_per_step=1",
        "algo.replay_buffer_n=64",
        "algo.learning_starts=4",
        "algo.actor_hidden_dim=[8]",
        "algo.critic_hidden_dim=[8]",
        "algo.save_interval=10",
        "algo.max_iterations=40",
    ),
    "ppo": ("algo.num_steps_per_env=4", *_ON_POLICY),
    "appo": ("algo.steps_per_env=4", *_ON_POLICY),
}


@dataclass(kw_only=True, slots=True, frozen=True)
class TinyJob:
    """One folder: registry, run directories, output of the launcher."""

    folder: Path
    algo: str

    @property
    def registry(self) -> Path:
        """Runtime directory of this job alone."""
        return self.folder / "registry"

    @property
    def output(self) -> Path:
        """What the launcher prints."""
        return self.folder / "launcher.out"

    def run_dirs(self) -> list[Path]:
        """Every run directory, oldest first."""
        return sorted((self.folder / "runs").glob("*"))

    def run_ids(self) -> list[str]:
        """Random ids of every run that came so far as to write its configuration."""
        records = (read_json(RunPaths(path).config) for path in self.run_dirs())
        return [str(record["run_id"]) for record in records if record is not None]

    def command(self, settings: Sequence[str], *, resume: Path | None = None) -> list[str]:
        """The command line of one run; later settings win."""
        log_dir = self.folder / "runs" / f"{len(self.run_dirs()):04d}"
        words = [sys.executable, "-m", "unilab_core.launch", "--plain", "--job", JOB]
        if resume is None:
            words += ["--algo", self.algo, "--task", TASK]
        else:
            words += ["--resume", str(resume)]
        values = {"training.logger": "none", "training.log_dir": str(log_dir)}
        for setting in (*_COMMON, *SETTINGS[self.algo], *settings):
            key, _, value = setting.partition("=")
            values[key] = value
        return [*words, *(f"{key}={value}" for key, value in values.items())]

    def environ(self, fault: str | None = None) -> dict[str, str]:
        """The environment of every process of this job."""
        environ = {**os.environ, RUNTIME_DIR_VARIABLE: str(self.registry)}
        environ.pop(VARIABLE, None)
        if fault is not None:
            environ[VARIABLE] = fault
        return environ

    def start(
        self,
        settings: Sequence[str] = (),
        *,
        fault: str | None = None,
        resume: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start the launcher; its output replaces that of the run before."""
        self.registry.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.output.open("wb") as output:
            return subprocess.Popen(
                self.command(settings, resume=resume),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environ(fault),
                cwd=self.folder,
                start_new_session=True,
            )

    def collect_garbage(self) -> int:
        """`unilab-launch gc`; its exit code."""
        done = subprocess.run(
            [sys.executable, "-m", "unilab_core.launch", "gc"],
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60.0,
            check=False,
        )
        return done.returncode

    def said(self) -> str:
        """The launcher's output so far."""
        try:
            return self.output.read_text(errors="replace")
        except FileNotFoundError:
            return ""
