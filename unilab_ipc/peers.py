"""Process identity, liveness and signals (Linux).

A pid alone proves nothing: it is reused, and `kill(pid, 0)` succeeds on a zombie. A process is
identified by pid *and* start ticks, checked after its pidfd was opened; from then on the pidfd
names that process and no other. This is the only module that sends signals.
"""

import ctypes
import os
import select
import signal

from unilab_ipc.errors import IpcError, PeerDead

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def process_start_ticks(pid: int) -> int | None:
    """Start time in clock ticks since boot, or None if there is no such process."""
    fields = _stat_fields(pid)
    return None if fields is None else int(fields[19])


def process_state(pid: int) -> str | None:
    """The kernel's state letter (R running, S sleeping, T stopped, Z zombie ...), None if gone."""
    fields = _stat_fields(pid)
    return None if fields is None else fields[0]


def process_cpu_s(pid: int) -> float:
    """User and system time of a process, in s (proc(5)); 0 when it is gone."""
    fields = _stat_fields(pid)
    if fields is None:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tracer_pid(pid: int) -> int:
    """The debugger (gdb, strace, ...) attached to a process; 0: none, or no such process."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("TracerPid:"):
                    return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def set_parent_death_signal(expected_ppid: int, signum: signal.Signals = signal.SIGTERM) -> None:
    """Ask for `signum` when the parent ends; PeerDead if it has ended already.

    The kernel means the parent *thread*: the launcher must spawn from its main thread.
    """
    _prctl("PR_SET_PDEATHSIG", _PR_SET_PDEATHSIG, int(signum))
    if os.getppid() != expected_ppid:
        raise PeerDead("parent", 0, expected_ppid)


def adopt_orphans() -> None:
    """From now on a descendant whose parent ends becomes our child instead of init's."""
    _prctl("PR_SET_CHILD_SUBREAPER", _PR_SET_CHILD_SUBREAPER, 1)


class Peer:
    """A process we depend on: role, rank, pid and start ticks as it registered them."""

    __slots__ = ("_fd", "_poll", "pid", "rank", "role", "start_ticks")

    def __init__(self, role: str, rank: int, pid: int, start_ticks: int) -> None:
        self.role = role
        self.rank = rank
        self.pid = pid
        self.start_ticks = start_ticks
        self._fd = -1
        self._poll = select.poll()

    def open(self) -> "Peer":
        """Open the pidfd and prove that it is the registered process; PeerDead otherwise."""
        if self._fd >= 0:
            return self
        if self.pid <= 0:
            raise PeerDead(self.role, self.rank, self.pid)
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            raise PeerDead(self.role, self.rank, self.pid) from None
        if process_start_ticks(self.pid) != self.start_ticks:
            os.close(fd)
            raise PeerDead(self.role, self.rank, self.pid)
        self._fd = fd
        self._poll.register(fd, select.POLLIN)
        return self

    def fileno(self) -> int:
        """The pidfd: readable once the process has ended (a zombie counts as ended)."""
        if self._fd < 0:
            raise IpcError(f"{self.role} {self.rank}: peer is not open")
        return self._fd

    def is_dead(self) -> bool:
        """Whether the process has ended; a stopped process is not dead."""
        self.fileno()
        return bool(self._poll.poll(0))

    def dead_error(self) -> PeerDead:
        """The error that names this peer."""
        return PeerDead(self.role, self.rank, self.pid)

    def send_signal(self, signum: int) -> None:
        """Send a signal to exactly this process; PeerDead if it has been reaped."""
        try:
            signal.pidfd_send_signal(self.fileno(), signum)
        except ProcessLookupError:
            raise self.dead_error() from None

    def close(self) -> None:
        """Close the pidfd; calling again does nothing."""
        if self._fd >= 0:
            self._poll.unregister(self._fd)
            os.close(self._fd)
            self._fd = -1


def _prctl(name: str, option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise IpcError(f"prctl({name}) failed: {os.strerror(code)}")


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state letter on (the command may hold anything)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(b")") + 2 :].decode("ascii").split()
