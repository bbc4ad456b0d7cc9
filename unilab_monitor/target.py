"""What the argument means: a job name, a run directory, or nothing (the only or the newest job)."""

from pathlib import Path

from unilab_core.run.run_dir import RunPaths
from unilab_core.telemetry.rl_trace.formats import is_trace_directory
from unilab_ipc.errors import JobMissing
from unilab_ipc.names import validate_job_name
from unilab_ipc.registry import JobFolder, JobInfo, list_jobs, runtime_dir
from unilab_monitor.sources import KILLED_REASON, FinishedSource, LiveSource, Source


class NothingToShow(LookupError):  # noqa: N818 - says the state that was met
    """There is no such job or run; the text says what was looked for and where."""


def resolve(target: str | None) -> Source:
    """The source for an argument of the command line.

    Raises:
        NothingToShow: nothing fits, or the registry is not ours to read.
    """
    try:
        jobs, problem = list_jobs(), None
    except (ValueError, OSError) as error:
        # A run directory can be shown without a registry.
        jobs, problem = [], f"job registry: {error}"
    if target is None:
        if not jobs:
            raise NothingToShow(
                problem
                or f"no job is known in {runtime_dir()}: start one with unilab-launch, "
                "or name a run directory"
            )
        return _newest(jobs)
    for info in jobs:
        if info.job == target:
            return _of_job(info)
    path = _directory(target)
    if path is not None:
        return _of_directory(path, jobs)
    if problem is None:
        known = ", ".join(info.job for info in jobs[-5:])
        problem = f"known jobs: {known}" if known else f"no job is known in {runtime_dir()}"
    raise NothingToShow(f"no job and no run directory named {ascii(target[:200])[1:-1]}; {problem}")


def trace_directory(target: str | None) -> Path | None:
    """The directory of RL traces that the argument names: no job, no run, but its three folders."""
    path = None if target is None else _directory(target)
    if path is None or RunPaths(path).config.exists():
        return None
    return path if is_trace_directory(path) else None


def open_job(job: str) -> LiveSource:
    """A job that is known to be starting or running (the launcher's own panel)."""
    try:
        return LiveSource(JobFolder.open(validate_job_name(job)))
    except (JobMissing, ValueError) as error:
        raise NothingToShow(str(error)) from None


def _newest(jobs: list[JobInfo]) -> Source:
    live = [info for info in jobs if info.state in ("starting", "running")]
    return _of_job((live or jobs)[-1])


def _of_job(info: JobInfo) -> Source:
    if info.state in ("starting", "running"):
        return open_job(info.job)
    if info.state == "dead":
        return _of_dead(info)
    record = {**(info.record or {}), **(info.ended or {}), "job": info.job}
    return FinishedSource(_directory(record.get("run_dir")), record)


def _of_dead(info: JobInfo) -> Source:
    """A killed launcher leaves its segments until they are collected: they hold the last state."""
    source = open_job(info.job)
    if source.attach():
        return source
    record = {"reason": KILLED_REASON, **(info.record or {}), "job": info.job}
    return FinishedSource(_directory(record.get("run_dir")), record)


def _of_directory(path: Path, jobs: list[JobInfo]) -> Source:
    paths = RunPaths(path)
    for info in jobs:
        record = info.record or {}
        live = info.state in ("starting", "running")
        if live and _directory(record.get("run_dir")) == path:
            return _of_job(info)
    if any(file.is_file() for file in (paths.last_state, paths.summary, paths.config)):
        return FinishedSource(path, None)
    raise NothingToShow(f"{path} is not a run directory: it has no {paths.config.name}")


def _directory(name: object) -> Path | None:
    if not isinstance(name, str):
        return None
    try:
        path = Path(name)
        return path.resolve() if path.is_dir() else None
    except (OSError, ValueError):  # too long, a NUL: no name of a directory
        return None
