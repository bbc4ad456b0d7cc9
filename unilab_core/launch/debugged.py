"""The role of `--debug`: started by a person under a debugger, seen through the heartbeat board.

    waiting  --row registered-->  running  --row ended, or process gone-->  reaped

The launcher is not its parent: its end is read from its row and its error.json. At that moment the
process may live on at the prompt of its debugger; it is nobody's business any more and gets no
signal. While it runs it is asked to leave like any other, but never killed: that would take the
debugger along.
"""

import contextlib
import shlex
import signal
from collections.abc import Mapping

from unilab_core.launch.outcome import ChildExit
from unilab_core.launch.plan import ProcessSpec
from unilab_core.run.exit_codes import UNEXPECTED
from unilab_core.run.json_files import read_json
from unilab_core.run.run_dir import RunPaths
from unilab_ipc.errors import IpcError, PeerDead
from unilab_ipc.heartbeat import HeartbeatBoard
from unilab_ipc.peers import Peer
from unilab_ipc.registry import RUNTIME_DIR_VARIABLE

INHERITED = (RUNTIME_DIR_VARIABLE, "PYTHONPATH", "CUDA_VISIBLE_DEVICES")
"""Variables of the launcher that decide which job and which code another terminal finds."""


def debug_command(spec: ProcessSpec, environ: Mapping[str, str]) -> str:
    """The command line that runs this role under pdb; any other debugger replaces `-m pdb`."""
    settings = {name: environ[name] for name in INHERITED if name in environ} | spec.environ
    python, *rest = spec.argv
    assert rest[0] == "-m", rest
    words = [f"{name}={value}" for name, value in sorted(settings.items())]
    return shlex.join(["env", *words, python, "-m", "pdb", *rest])


class DebuggedProcess:
    """Stands where the others have a `ChildProcess`.

    Attributes:
        peer: the process once it has registered, None before.
    """

    def __init__(self, spec: ProcessSpec, run: RunPaths, board: HeartbeatBoard) -> None:
        self.spec = spec
        self.log = run.log(spec.role, spec.rank)
        self.peer: Peer | None = None
        self._error = run.error(spec.role, spec.rank)
        self._board = board
        self._left_alone = False
        self._pid = 0
        self._start_ticks = 0

    @property
    def pid(self) -> int:
        """Process id; 0 before it was started."""
        return self._pid

    @property
    def start_ticks(self) -> int:
        """Start time, which with the pid identifies the process; 0 before it was started."""
        return self._start_ticks

    def reap(self, phase: str) -> ChildExit | None:
        """Its end, once it has ended or needs no more waiting for."""
        row = self._board.row(self.spec.role, self.spec.rank)
        if self.peer is None and row.state == "alive":
            with contextlib.suppress(PeerDead, IpcError):
                self.peer = row.peer().open()
                self._pid, self._start_ticks = row.pid, row.start_ticks
        if row.state in ("ended", "stopped"):
            return self._exit(0, phase)
        if row.state == "failed":
            error = read_json(self._error)
            code = UNEXPECTED if error is None else error.get("exit_code", UNEXPECTED)
            return self._exit(int(code), phase)
        if self.peer is not None and self.peer.is_dead():
            return self._exit(-signal.SIGKILL, phase)  # the only end that leaves no word
        return self._exit(0, phase) if self._left_alone else None

    def send_signal(self, signum: int) -> None:
        """Signal it; what would be a kill only ends the waiting for it."""
        if signum == signal.SIGKILL or self.peer is None:
            self._left_alone = True
            return
        with contextlib.suppress(PeerDead, IpcError):
            self.peer.send_signal(signum)

    def end_now(self) -> ChildExit | None:
        """The launcher fails: this process notices by itself."""
        if self.peer is not None:
            self.peer.close()
        return None

    def _exit(self, returncode: int, phase: str) -> ChildExit:
        if self.peer is not None:
            self.peer.close()
            self.peer = None
        return ChildExit(
            role=self.spec.role,
            rank=self.spec.rank,
            pid=self._pid,
            returncode=returncode,
            phase=phase,
            error=read_json(self._error),
        )
