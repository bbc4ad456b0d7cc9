"""Real children: spawn, death through pidfds, exit status with peak memory, stacks on request.

Each child has a session of its own, so that Ctrl-C in the terminal reaches the launcher alone, and
writes to `logs/<role>-<rank>.log`. It is started from the main thread: the kernel ties the
parent-death signal to the thread that spawned it.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from unilab_core.launch.environment import child_environ
from unilab_core.launch.outcome import ChildExit
from unilab_core.launch.plan import ProcessSpec
from unilab_core.run.child import STACKS_SIGNAL
from unilab_core.run.job_trace import ECHO_VARIABLE
from unilab_core.run.json_files import read_json
from unilab_core.run.run_dir import RunPaths
from unilab_core.telemetry.plain import sanitize
from unilab_ipc.errors import IpcError, PeerDead
from unilab_ipc.peers import Peer, process_start_ticks

STACKS_WAIT_S = 1.0
STACKS_POLL_S = 0.02
MAX_STACKS_BYTES = 64 * 1024
TAIL_BYTES = 4096
END_NOW_S = 2.0


class ChildProcess:
    """One running child."""

    def __init__(
        self,
        spec: ProcessSpec,
        run: RunPaths,
        parent_environ: Mapping[str, str],
        *,
        echo_fd: int | None = None,
    ) -> None:
        self.spec = spec
        self.log = run.log(spec.role, spec.rank)
        self._error = run.error(spec.role, spec.rank)
        environ = child_environ(parent_environ, spec.role, spec.environ)
        if echo_fd is not None:
            environ[ECHO_VARIABLE] = str(echo_fd)
        with self.log.open("ab") as output:
            self._popen = subprocess.Popen(
                spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environ,
                start_new_session=True,
                pass_fds=() if echo_fd is None else (echo_fd,),
            )
        try:
            self.peer = _identify(spec, self._popen.pid)
        except BaseException:  # no descriptor left, say: nobody knows of this child yet
            self._popen.kill()
            self._popen.wait()
            raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self.peer.pid

    @property
    def start_ticks(self) -> int:
        """Start time, which with the pid identifies the process."""
        return self.peer.start_ticks

    def reap(self, phase: str) -> ChildExit | None:
        """The exit status if the child has ended; its pid is free afterwards."""
        found, status, usage = os.wait4(self._popen.pid, os.WNOHANG)
        if found == 0:
            return None
        self._popen.returncode = os.waitstatus_to_exitcode(status)
        self.peer.close()
        return ChildExit(
            role=self.spec.role,
            rank=self.spec.rank,
            pid=found,
            returncode=self._popen.returncode,
            phase=phase,
            error=read_json(self._error),
            max_rss_bytes=usage.ru_maxrss * 1024,
        )

    def send_signal(self, signum: int) -> None:
        """Signal the child; one that has ended is no error."""
        with contextlib.suppress(PeerDead, IpcError):
            self.peer.send_signal(signum)

    def end_now(self) -> ChildExit | None:
        """SIGKILL and reap, for a launcher that cannot go on itself; None: ended, or stuck."""
        if self._popen.returncode is not None:
            return None
        self.send_signal(signal.SIGKILL)
        try:
            returncode = self._popen.wait(END_NOW_S)
        except subprocess.TimeoutExpired:
            return None
        return ChildExit(
            role=self.spec.role,
            rank=self.spec.rank,
            pid=self._popen.pid,
            returncode=returncode,
            phase="ended",
            error=read_json(self._error),
        )


def _identify(spec: ProcessSpec, pid: int) -> Peer:
    """The child by pid and start time, held by a pidfd."""
    ticks = process_start_ticks(pid)
    if ticks is None:
        raise IpcError(f"{spec.role}-{spec.rank}: no process after its start")
    return Peer(spec.role, spec.rank, pid, ticks).open()


def capture_stacks(peer: Peer, log: Path) -> str:
    """Ask a process for its Python stacks and return what it wrote into its log."""
    try:
        before_bytes = log.stat().st_size
        peer.send_signal(STACKS_SIGNAL)
    except (OSError, IpcError) as error:
        return f"no stacks of {peer.role}-{peer.rank}: {error}"
    written = _wait_for_growth(log, before_bytes)
    if not written:
        return f"{peer.role}-{peer.rank} (pid {peer.pid}) did not print its stacks"
    lines = [sanitize(line, 300) for line in written.splitlines()]
    return "\n".join([f"Python stacks of {peer.role}-{peer.rank} (pid {peer.pid}):", *lines])


def read_tail(path: Path, num_lines: int) -> list[str]:
    """Last lines of a text file, cleaned for output."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [sanitize(line, 300) for line in text.splitlines()[-num_lines:]]


def _wait_for_growth(log: Path, before_bytes: int) -> str:
    """Text appended to a file by another process, once it has stopped growing.

    A signal handler in another process cannot ring a bell, hence the short naps: this runs for at
    most a second, in a command of its own or in a job that is about to be ended.
    """
    deadline_s = time.monotonic() + STACKS_WAIT_S
    size_bytes = before_bytes
    while time.monotonic() < deadline_s:
        time.sleep(STACKS_POLL_S)
        now_bytes = log.stat().st_size
        if now_bytes > before_bytes and now_bytes == size_bytes:
            break
        size_bytes = now_bytes
    with log.open("rb") as file:
        file.seek(before_bytes)
        return file.read(MAX_STACKS_BYTES).decode(errors="replace")
