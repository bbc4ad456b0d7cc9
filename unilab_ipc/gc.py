"""Removal of what dead runs left in /dev/shm and in the registry.

Proof of death is a lock that can be taken: the creator holds `flock` on each of its segments until
the kernel takes it away. All objects of a run are locked before the first is removed; if one of
them is held, the run lives (in another runtime directory, container or pid namespace perhaps) and
nothing of it is touched. What cannot be opened or locked is reported, never forced.
"""

import contextlib
import fcntl
import os
import stat
from dataclasses import dataclass, field
from typing import Any

from unilab_ipc.memory import SHM_DIR
from unilab_ipc.names import parse_segment_name
from unilab_ipc.registry import bury_dead_jobs, list_jobs


@dataclass(slots=True)
class GcReport:
    """What was (or, in a dry run, would be) removed, and what was left alone and why."""

    objects: int = 0
    runs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    skipped: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    folders: list[str] = field(default_factory=list[str])

    def to_json(self) -> dict[str, Any]:
        """The machine-readable form."""
        return {
            "objects": self.objects,
            "runs": self.runs,
            "skipped": self.skipped,
            "folders": self.folders,
        }


def collect_garbage(dry_run: bool = False) -> GcReport:
    """Remove the segments and close the folders of dead runs."""
    report = GcReport()
    job_of_run = _job_of_run()
    names_of_run: dict[str, list[str]] = {}
    for name in sorted(os.listdir(SHM_DIR)):
        parsed = parse_segment_name(name)
        if parsed is not None:
            names_of_run.setdefault(parsed.run_id, []).append(name)
    for run_id, names in names_of_run.items():
        taken = _collect_run(names, report, dry_run)
        if taken:
            report.objects += len(taken)
            shown = ["/" + name for name in taken]
            report.runs.append({"run_id": run_id, "job": job_of_run.get(run_id), "names": shown})
    report.folders = bury_dead_jobs(dry_run)
    return report


def _job_of_run() -> dict[str, str]:
    jobs: dict[str, str] = {}
    for info in list_jobs():
        for record in (info.record, info.ended):
            run_id = None if record is None else record.get("run_id")
            if isinstance(run_id, str):
                jobs[run_id] = info.job
    return jobs


def _collect_run(names: list[str], report: GcReport, dry_run: bool) -> list[str]:
    """Lock every object of one run, then remove them; returns the names taken."""
    held: dict[str, int] = {}
    refused: list[dict[str, str]] = []
    alive = False
    try:
        for name in names:
            fd, reason = _lock_object(name)
            if fd is not None:
                held[name] = fd
            elif reason is not None:
                refused.append({"name": "/" + name, "reason": reason})
                alive = alive or reason == _IN_USE
        report.skipped.extend(refused)
        if alive:
            report.skipped.extend(
                {"name": "/" + name, "reason": "its run is alive"} for name in held
            )
            return []
        return [name for name, fd in held.items() if dry_run or _remove(name, fd)]
    finally:
        for fd in held.values():
            os.close(fd)


_IN_USE = "in use: a live process holds its lock"


def _lock_object(name: str) -> tuple[int | None, str | None]:
    """(descriptor, None) when locked, (None, reason) when refused, (None, None) when it is gone."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    path = f"{SHM_DIR}/{name}"
    try:
        # Looked at before it is opened: opening a device or a FIFO may have effects.
        before = os.lstat(path)
        if not stat.S_ISREG(before.st_mode):
            return None, "not a regular file"
        if before.st_uid != os.geteuid():
            return None, f"belongs to uid {before.st_uid}"
        fd = os.open(path, flags)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"cannot be opened: {error.strerror}"
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None, _IN_USE
    except BaseException:
        os.close(fd)
        raise
    return fd, None


def _remove(name: str, fd: int) -> bool:
    """Unlink `name` if it still refers to the locked object."""
    path = f"{SHM_DIR}/{name}"
    with contextlib.suppress(FileNotFoundError):
        found, ours = os.lstat(path), os.fstat(fd)
        owner_ok = ours.st_uid == os.geteuid() and stat.S_ISREG(ours.st_mode)
        if owner_ok and (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino):
            os.unlink(path)
            return True
    return False
