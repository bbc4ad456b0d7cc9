"""Wake-ups between processes: one FIFO per role in the job folder.

A ring is one non-blocking byte; a full FIFO means "already rung". The role that owns the bell polls
it together with its peers' pidfds (`waiting.Waiter`). Opened read-write, so that neither end blocks
or fails when the other is absent. The system call orders our earlier stores before the wake-up.

# SYNC POINT: bell (`ring` after the payload and its sequence word, `drain` before looking again)
"""

import os
import signal
import stat
from pathlib import Path

from unilab_ipc.errors import EXHAUSTED, SegmentForeign, SegmentMissing

_FLAGS = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
_MODE = 0o600


class Doorbell:
    """One end of a bell; both ends can ring and drain, by convention only the owner drains."""

    __slots__ = ("_fd", "_sink")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._sink = [bytearray(4096)]

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> "Doorbell":
        """Make the FIFO (exclusively, 0600) and open it."""
        os.mkfifo(path, _MODE)
        os.chmod(path, _MODE)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Doorbell":
        """Open an existing bell after checking that it is a FIFO of ours."""
        try:
            fd = os.open(path, _FLAGS)
        except FileNotFoundError:
            raise SegmentMissing(str(Path(path))) from None
        except OSError as error:  # a symlink, a directory, somebody else's file
            if error.errno in EXHAUSTED:
                raise
            raise SegmentForeign(f"{path} to be a doorbell of ours", str(error)) from error
        info = os.fstat(fd)
        mode = stat.S_IMODE(info.st_mode)
        if not stat.S_ISFIFO(info.st_mode) or info.st_uid != os.geteuid() or mode != _MODE:
            os.close(fd)
            found = f"mode {info.st_mode:o} of uid {info.st_uid}"
            raise SegmentForeign(f"{path} to be a FIFO of ours with mode 600", found)
        return cls(fd)

    def ring(self) -> None:
        """Wake the owner; never blocks."""
        # SYNC POINT: bell
        try:  # noqa: SIM105 - twice per tick: suppress() would cost more than the system call's entry
            os.write(self._fd, b"\1")
        except BlockingIOError:
            pass

    def drain(self) -> None:
        """Forget the rings so far; rings that come later wake again."""
        # SYNC POINT: bell
        try:  # noqa: SIM105 - as in `ring`
            os.readv(self._fd, self._sink)
        except BlockingIOError:
            pass

    def fileno(self) -> int:
        """Descriptor to poll for reading."""
        return self._fd

    def wake_on_signals(self) -> None:
        """Let every Python signal handler of this process ring this bell too (main thread only).

        Without it a handler that only sets a flag would be noticed at the end of the slice, because
        the interpreter resumes an interrupted poll.
        """
        signal.set_wakeup_fd(self._fd, warn_on_full_buffer=False)

    def close(self) -> None:
        """Close our descriptor; calling again does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
