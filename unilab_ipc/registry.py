"""The job registry: one 0700 folder per job under a per-user runtime directory.

    <runtime dir>/<job>/owner.lock      flock held by the launcher for the life of the job
                        launch.json     what children need to start
                        env_spec.json   the collector's environment, as built
                        job.json        present = attachable
                        <role>-<rank>.bell
                        ended.json      left behind: why and how the job ended

The kernel drops the lock when the launcher dies, whatever killed it; a folder whose lock can be
taken is therefore a dead or ended job and may be reclaimed. `owner.lock` itself is never removed,
so that two claimants always meet on the same inode.

States: starting (locked) -> running (locked + job.json) -> ended (ended.json); dead = unlocked
without ended.json.
"""

import contextlib
import fcntl
import json
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from unilab_ipc.errors import IpcError, JobMissing, NameInUse, RecordInvalid
from unilab_ipc.names import validate_job_name
from unilab_ipc.peers import process_start_ticks

RUNTIME_DIR_VARIABLE = "UNILAB_RUNTIME_DIR"
MAX_RECORD_BYTES = 8 << 20

_LOCK = "owner.lock"
_CLAIM_PATIENCE_S = 0.5
_RETRY_S = 0.005
_CLAIM_BYTES = 2048


def runtime_dir() -> Path:
    """The registry's directory, made if absent; ValueError with the remedy if it is not safe."""
    given = os.environ.get(RUNTIME_DIR_VARIABLE)
    path = (
        Path(given).expanduser().resolve()
        if given
        else Path(tempfile.gettempdir()) / f"unilab-{os.geteuid()}"
    )
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=bool(given))
        path.chmod(0o700)
    _check_private_dir(path)
    return path


@dataclass(slots=True, frozen=True)
class JobInfo:
    """One line of `list_jobs`. `record` is job.json, or launch.json before that exists."""

    job: str
    state: str
    record: dict[str, Any] | None
    ended: dict[str, Any] | None
    path: Path


class JobFolder:
    """A job's folder, either owned (`claim`, by the launcher) or looked at (`open`)."""

    __slots__ = ("_lock_fd", "_token", "job", "path")

    def __init__(self, job: str, path: Path, token: str, lock_fd: int | None) -> None:
        self.job = job
        self.path = path
        self._token = token
        self._lock_fd = lock_fd

    @classmethod
    def claim(cls, job: str, info: Mapping[str, Any]) -> "JobFolder":
        """Become the owner of `job`; NameInUse if a live launcher owns it.

        `info` is stored with the claim for whoever is refused later. Leftovers of an ended or dead
        job of the same name are removed.
        """
        path = runtime_dir() / validate_job_name(job)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            path.chmod(0o700)
        _check_private_dir(path)
        lock_fd = _lock_owner(job, path)
        try:
            _remove_leftovers(path)
            token = secrets.token_hex(8)
            pid = os.getpid()
            owner = {
                **info,
                "job": job,
                "pid": pid,
                "start_ticks": process_start_ticks(pid),
                "started_utc": datetime.now(UTC).isoformat(timespec="seconds"),
                "token": token,
            }
            _store_owner(lock_fd, owner)
        except BaseException:
            os.close(lock_fd)
            raise
        return cls(job, path, token, lock_fd)

    @classmethod
    def open(cls, job: str) -> "JobFolder":
        """Look at an existing job, live or not; JobMissing if there is none."""
        path = runtime_dir() / validate_job_name(job)
        try:
            _check_private_dir(path)
        except FileNotFoundError:
            raise JobMissing(job) from None
        owner = _read_owner(path)
        if owner is None:
            raise JobMissing(job)
        return cls(job, path, str(owner.get("token", "")), None)

    def is_live(self) -> bool:
        """Whether a launcher holds this folder's lock."""
        return self._lock_fd is not None or _is_locked(self.path)

    def owner(self) -> dict[str, Any]:
        """The claim: the `info` given to it plus pid, start_ticks, started_utc."""
        return _read_owner(self.path) or {}

    def bell_path(self, role: str, rank: int) -> Path:
        """Where the doorbell of a role lives."""
        return self.path / f"{role}-{rank}.bell"

    def write_json(self, name: str, record: Mapping[str, Any]) -> None:
        """Write a record atomically (0600). Refused once another launcher took the folder over."""
        path = self.path / _check_record_name(name)
        if self._lock_fd is None and self.owner().get("token") != self._token:
            raise IpcError(f"job {self.job!r} was taken over by another launcher")
        raw = json.dumps(record, allow_nan=False).encode()
        scratch = self.path / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
        fd = os.open(
            scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, 0o600)
                file.write(raw)
            scratch.rename(path)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A record, or None if it does not exist; RecordInvalid if it is not ours."""
        return _read_json(self.path / _check_record_name(name))

    def release(self, ended: Mapping[str, Any]) -> None:
        """End of the job (owner only): leave `ended.json`, remove the rest, drop the lock."""
        if self._lock_fd is None:
            raise IpcError(f"job {self.job!r}: only the owner may release it")
        self.write_json("ended.json", ended)
        _remove_leftovers(self.path, keep=("ended.json",))
        # No pid any more: this process may live on and must not pass for the owner.
        _store_owner(self._lock_fd, {**self.owner(), "pid": None, "token": ""})
        os.close(self._lock_fd)
        self._lock_fd = None


def list_jobs() -> list[JobInfo]:
    """Every job of this runtime directory, oldest first; damaged records count as absent."""
    jobs: list[tuple[float, JobInfo]] = []
    for entry in os.scandir(runtime_dir()):
        try:
            validate_job_name(entry.name)
            path = Path(entry.path)
            _check_private_dir(path)
            changed_s = (path / _LOCK).lstat().st_mtime
        except (ValueError, FileNotFoundError):
            continue
        jobs.append((changed_s, _job_info(entry.name, path)))
    return [info for _, info in sorted(jobs, key=lambda item: (item[0], item[1].job))]


def bury_dead_jobs(dry_run: bool = False) -> list[str]:
    """Turn folders of dead launchers into ended ones; returns the jobs (proof: their lock)."""
    buried: list[str] = []
    for info in list_jobs():
        if info.state != "dead":
            continue
        lock_fd = _try_lock(info.path)
        if lock_fd is None:
            continue
        try:
            if _read_json_leniently(info.path / "ended.json") is None:
                buried.append(info.job)
                if not dry_run:
                    _bury(info, lock_fd)
        finally:
            os.close(lock_fd)
    return buried


def _bury(info: JobInfo, lock_fd: int) -> None:
    owner = _read_owner(info.path) or {}
    record = info.record or {}
    ended = {
        "state": "ended",
        "reason": "the launcher died without cleaning up",
        "exit_code": None,
        "ended_utc": None,
        "started_utc": owner.get("started_utc"),
        "pid": owner.get("pid"),
        **{key: record.get(key) for key in ("run_id", "run_dir", "algo", "task", "sim")},
    }
    folder = JobFolder(info.job, info.path, "", lock_fd)
    folder.write_json("ended.json", ended)
    _remove_leftovers(info.path, keep=("ended.json",))


def _job_info(job: str, path: Path) -> JobInfo:
    record = _read_json_leniently(path / "job.json")
    ended = _read_json_leniently(path / "ended.json")
    if _is_locked(path):
        state = "starting" if record is None else "running"
        ended = None
    else:
        state = "dead" if ended is None else "ended"
    if record is None:
        record = _read_json_leniently(path / "launch.json")
    return JobInfo(job=job, state=state, record=record, ended=ended, path=path)


def _check_private_dir(path: Path) -> None:
    info = path.lstat()
    remedy = f"fix it, or set {RUNTIME_DIR_VARIABLE} to a directory of your own"
    if not stat.S_ISDIR(info.st_mode):
        raise ValueError(f"{path} is not a directory; {remedy}")
    if info.st_uid != os.geteuid():
        raise ValueError(f"{path} belongs to uid {info.st_uid}, not {os.geteuid()}; {remedy}")
    if stat.S_IMODE(info.st_mode) & 0o077:
        raise ValueError(f"{path} is open to other users; run `chmod 700 {path}`, or {remedy}")


def _lock_owner(job: str, path: Path) -> int:
    """The locked descriptor of owner.lock; NameInUse when a live launcher has it.

    A reader that probes the lock holds it for an instant, hence a second look before refusing.
    """
    deadline_s = time.monotonic() + _CLAIM_PATIENCE_S
    while True:
        fd = _try_lock(path)
        if fd is not None:
            return fd
        owner = _read_owner(path) or {}
        pid = owner.get("pid")
        alive = isinstance(pid, int) and process_start_ticks(pid) == owner.get("start_ticks")
        if alive or time.monotonic() >= deadline_s:
            shown_pid = pid if isinstance(pid, int) else 0
            raise NameInUse(job, shown_pid, str(owner.get("started_utc", "a moment ago")))
        time.sleep(_RETRY_S)


def _open_lock(path: Path, flags: int) -> int:
    fd = os.open(path / _LOCK, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ValueError(f"{path / _LOCK} is not a regular file; remove it")
    return fd


def _try_lock(path: Path) -> int | None:
    fd = _open_lock(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    os.fchmod(fd, 0o600)
    return fd


def _is_locked(path: Path) -> bool:
    try:
        fd = _open_lock(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two readers never take each other for an owner.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _remove_leftovers(path: Path, keep: tuple[str, ...] = ()) -> None:
    """Remove files of an earlier owner; the caller holds the lock."""
    for entry in os.scandir(path):
        if (
            entry.name != _LOCK
            and entry.name not in keep
            and not entry.is_dir(follow_symlinks=False)
        ):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.path)


def _check_record_name(name: str) -> str:
    if "/" in name or name.startswith(".") or not name.endswith(".json"):
        raise ValueError(f"record name must be a plain *.json name, got {name!r}")
    return name


def _store_owner(lock_fd: int, owner: Mapping[str, Any]) -> None:
    # Padded, so that one write replaces any earlier claim (JSON allows trailing blanks).
    raw = json.dumps(owner).encode().ljust(_CLAIM_BYTES)
    os.pwrite(lock_fd, raw, 0)
    os.ftruncate(lock_fd, len(raw))


def _read_owner(path: Path) -> dict[str, Any] | None:
    return _read_json_leniently(path / _LOCK)


def _read_json_leniently(path: Path) -> dict[str, Any] | None:
    try:
        return _read_json(path)
    except RecordInvalid:
        return None


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordInvalid(f"{path}: {error}") from error
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_RECORD_BYTES:
            raise RecordInvalid(f"{path}: not a regular file of at most {MAX_RECORD_BYTES} bytes")
        raw = file.read(MAX_RECORD_BYTES + 1)
    try:
        record: object = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RecordInvalid(f"{path}: not JSON ({error})") from error
    if not isinstance(record, dict):
        raise RecordInvalid(f"{path}: not a JSON object")
    return cast("dict[str, Any]", record)
