"""The run directory: where everything that outlives a run is kept.

    logs/<algo_log_name>/<task>/<YYYY-MM-DD_HH-MM-SS>_<sim>/
        run_config.json        job, run id, versions, and the whole configuration
        run_summary.json       figures at the end
        last_state.json        what monitors show after the end
        checkpoints/           the last two and the best
        policy.pt              the newest policy, all that evaluation needs
        policy.onnx            the same for other runtimes (training.export_onnx)
        policies/              policies on a clock (training.policy_interval_s)
        logs/<role>-<rank>.log           output of each process, stacks included
        logs/<role>-<rank>.error.json    why a process failed
        nan_guard/nan_<step>_<source>.npz   last states before a value that was not finite
        play_video.mp4
        trace/                 the Perfetto timeline (training.trace_enabled)

The launcher writes the json files and the logs; the learner the rest.
"""

import errno
import os
import shutil
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from unilab_core.config.config import Config, config_from_dict
from unilab_core.config.errors import ConfigError
from unilab_core.run.failures import CheckpointError, RunDirError
from unilab_core.run.json_files import read_json
from unilab_core.telemetry.timeline.files import timeline_folder

MAX_SUFFIX = 1000


@dataclass(slots=True, frozen=True)
class RunPaths:
    """Names inside one run directory."""

    run_dir: Path

    @property
    def config(self) -> Path:
        """Configuration of the run."""
        return self.run_dir / "run_config.json"

    @property
    def summary(self) -> Path:
        """Figures at the end."""
        return self.run_dir / "run_summary.json"

    @property
    def last_state(self) -> Path:
        """What monitors show after the end."""
        return self.run_dir / "last_state.json"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.run_dir / "checkpoints"

    @property
    def policy(self) -> Path:
        """Newest exported policy."""
        return self.run_dir / "policy.pt"

    @property
    def onnx(self) -> Path:
        """The newest policy for other runtimes."""
        return self.run_dir / "policy.onnx"

    @property
    def policies(self) -> Path:
        """Folder of policies that were exported on a clock."""
        return self.run_dir / "policies"

    @property
    def nan_guard(self) -> Path:
        """Folder of the NaN guard's dumps."""
        return self.run_dir / "nan_guard"

    @property
    def logs(self) -> Path:
        """Folder of the processes' output."""
        return self.run_dir / "logs"

    @property
    def video(self) -> Path:
        """Video of the trained policy."""
        return self.run_dir / "play_video.mp4"

    def log(self, role: str, rank: int) -> Path:
        """Output of one process."""
        return self.logs / f"{role}-{rank}.log"

    def error(self, role: str, rank: int) -> Path:
        """Why that process failed; there only if it did."""
        return self.logs / f"{role}-{rank}.error.json"


def runs_folder(config: Config) -> Path:
    """Folder that holds the runs of the same algorithm and task."""
    root = Path(config.training.log_root or "logs")
    return root / config.algo.algo_log_name / config.training.task_name.replace(":", "_")


def create_run_dir(config: Config, now: datetime | None = None) -> Path:
    """Make a directory that nobody else has; the absolute path.

    Raises:
        RunDirError: the path cannot be made or written, with the path and the reason.
        OSError: the disk is full (ENOSPC), which is not the user's argument.
    """
    if config.training.log_dir is not None:
        wanted = Path(config.training.log_dir)
    else:
        stamp = (now or datetime.now()).strftime("%Y-%m-%d_%H-%M-%S")
        wanted = runs_folder(config) / f"{stamp}_{config.training.sim_backend}"
    wanted = Path(os.path.abspath(wanted))
    run_dir: Path | None = None
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        run_dir = _create_exclusively(wanted)
        for folder in ("logs", "checkpoints"):
            (run_dir / folder).mkdir()
        _create_trace_folder(config, run_dir)
    except OSError as error:
        if run_dir is not None:
            shutil.rmtree(run_dir, ignore_errors=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise RunDirError(f"cannot create run directory {wanted}: {error.strerror}") from None
    return run_dir


def _create_trace_folder(config: Config, run_dir: Path) -> None:
    """The timeline's folder may lie elsewhere: find out before anything starts."""
    training = config.training
    if not training.trace_enabled:
        return
    folder = timeline_folder(run_dir, training.trace_output_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        shutil.rmtree(run_dir, ignore_errors=True)
        raise RunDirError(
            f"training.trace_output_dir: cannot write into {folder}: {error.strerror}"
        ) from None


def load_run(run_dir: Path) -> dict[str, Any]:
    """The run_config.json of an earlier run, its configuration checked.

    Raises:
        RunDirError: there is no such directory, or it holds no run.
        CheckpointError: the file is damaged or of another version.
    """
    path = RunPaths(run_dir).config
    if not run_dir.is_dir():
        raise RunDirError(f"{run_dir}: no such run directory")
    if not path.is_file():
        raise RunDirError(f"{run_dir}: not a run directory, it has no {path.name}")
    record = read_json(path)
    if record is None or not isinstance(record.get("config"), dict):
        raise CheckpointError(f"{path}: damaged, not a run configuration")
    try:
        config_from_dict(record["config"])
    except ConfigError as error:
        raise CheckpointError(f"{path}: written by another version: {error}") from None
    return record


def newest_run(folder: Path) -> Path | None:
    """Newest run in a folder that has a checkpoint; names sort by time."""
    for run_dir in sorted((path for path in folder.glob("*") if path.is_dir()), reverse=True):
        if has_checkpoint(run_dir):
            return run_dir
    return None


def has_checkpoint(run_dir: Path) -> bool:
    """Whether the run saved anything that could be resumed."""
    return any(path.is_file() for path in RunPaths(run_dir).checkpoints.glob("*.pt"))


def _create_exclusively(wanted: Path) -> Path:
    for suffix in range(MAX_SUFFIX):
        path = wanted if suffix == 0 else wanted.with_name(f"{wanted.name}-{suffix + 1}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise FileExistsError(errno.EEXIST, f"{MAX_SUFFIX} directories of this name exist")
