"""What can go wrong between the processes of a job, one class per cause.

Everything here is an `IpcError`. A value that a user can fix (a job name, a directory mode) is a
`ValueError` instead and lives with the function that checks it. Names say the state that was met
("PeerDead"), hence no Error suffix.
"""
# ruff: noqa: N818

import errno

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What an `open` reports when this process or machine has run out: no property of the file."""


class IpcError(RuntimeError):
    """Base of every failure of shared memory, peers and the job registry."""


class SegmentMissing(IpcError):
    """No segment of that name exists (never created, or already unlinked)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"shared memory segment {name} does not exist")
        self.name = name


class SegmentNotReady(IpcError):
    """The segment exists, but its creator has not stored the fingerprint yet (or died first)."""

    def __init__(self, name: str, timeout_s: float = 0.0) -> None:
        super().__init__(f"shared memory segment {name} was not ready within {timeout_s:g} s")
        self.name = name
        self.timeout_s = timeout_s


class SegmentMismatch(IpcError):
    """The segment follows another layout, version or geometry than ours."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected = expected
        self.found = found


class SegmentForeign(SegmentMismatch):
    """Wrong owner, mode, size or file type: not a segment that our launcher made."""


class SegmentCorrupt(SegmentMismatch):
    """A word read from shared memory is impossible; nothing behind it may be believed."""


class NoSpace(IpcError):
    """/dev/shm cannot hold the segment."""

    def __init__(self, need_bytes: int, free_bytes: int) -> None:
        super().__init__(
            f"/dev/shm is too small: need {need_bytes} bytes, {free_bytes} bytes free "
            "(remove leftovers with `unilab-launch gc`, use fewer environments, or enlarge it, "
            "e.g. `docker run --shm-size`)"
        )
        self.need_bytes = need_bytes
        self.free_bytes = free_bytes


class PeerTimeout(IpcError):
    """The awaited role did not answer in time, though it is alive."""

    def __init__(self, awaits: str, timeout_s: float) -> None:
        super().__init__(f"no answer from {awaits} within {timeout_s:g} s")
        self.awaits = awaits
        self.timeout_s = timeout_s


class PeerDead(IpcError):
    """A process we depend on has ended."""

    def __init__(self, role: str, rank: int, pid: int) -> None:
        super().__init__(f"{role} {rank} (pid {pid}) has ended")
        self.role = role
        self.rank = rank
        self.pid = pid


class Closed(IpcError):
    """The other side closed the channel, or a stop was requested while waiting."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NameInUse(IpcError):
    """A live job already owns this name."""

    def __init__(self, job: str, pid: int, started_utc: str) -> None:
        super().__init__(
            f"job name {job!r} is in use by pid {pid}, started {started_utc}; "
            "choose another --job or stop that job"
        )
        self.job = job
        self.pid = pid
        self.started_utc = started_utc


class JobMissing(IpcError):
    """No job of that name is known in this runtime directory."""

    def __init__(self, job: str) -> None:
        super().__init__(f"no job named {job!r} in the registry")
        self.job = job


class RecordInvalid(IpcError):
    """A record in a job folder is not what we wrote (too long, not JSON, not an object)."""
