"""The launcher's loop: one poll over bell, signals, children and panel; events to the supervisor.

Nothing is waited for anywhere else. The slice bounds how late a deadline or a board row is noticed;
deaths, bells and signals wake the poll at once.
"""

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from unilab_core.launch.console import Console, Panel
from unilab_core.launch.debugged import DebuggedProcess
from unilab_core.launch.job_files import JobFiles, ProcessRecord
from unilab_core.launch.outcome import ChildExit, Outcome
from unilab_core.launch.processes import ChildProcess, capture_stacks
from unilab_core.launch.progress import Progress
from unilab_core.launch.supervisor import Child, State, Supervisor
from unilab_core.run.child import STOP_SIGNALS
from unilab_ipc.clock import Clock
from unilab_ipc.errors import RecordInvalid
from unilab_ipc.peers import process_start_ticks, process_state, tracer_pid

SLICE_MS = 200


class SignalPipe:
    """Termination signals in order of arrival, each counted, readable with poll."""

    def __init__(self, *, ignore_hangup: bool = False) -> None:
        self._ignore_hangup = ignore_hangup
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> "SignalPipe":
        """Install the handlers: from here on no signal ends this process by itself."""
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for signum in STOP_SIGNALS:
            signal.signal(signum, _noted)
        if self._ignore_hangup:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return self

    def __exit__(self, *exc: object) -> None:
        """Back to the defaults."""
        signal.set_wakeup_fd(-1)
        for signum in STOP_SIGNALS:
            default = signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL
            signal.signal(signum, default)
        os.close(self._read_fd)
        os.close(self._write_fd)

    def fileno(self) -> int:
        """Readable once a signal has arrived."""
        return self._read_fd

    def take(self) -> list[int]:
        """Signals since the last call."""
        with contextlib.suppress(BlockingIOError):
            return [number for number in os.read(self._read_fd, 4096) if number in STOP_SIGNALS]
        return []


class JobDriver:
    """What the supervisor decides, done to real processes."""

    def __init__(
        self,
        files: JobFiles,
        children: Sequence[ChildProcess | DebuggedProcess],
        console: Console,
    ) -> None:
        self._files = files
        self._children = {(child.spec.role, child.spec.rank): child for child in children}
        self._console = console
        self._beat = files.beat()

    def announce(self) -> None:
        """Segments from env_spec.json, job.json, and a ring for everybody."""
        self._files.announce([self._own_record(), *self._child_records()])
        self._beat.phase("training/supervise")
        self._files.ring_children()

    def request_stop(self, level: int) -> None:
        """Store the level, then ring."""
        self._beat.phase("finalize/stop_children")
        self._beat.request_stop(level)
        self._files.ring_children()

    def send_signal(self, role: str, rank: int, signum: int) -> None:
        """Signal one child."""
        self._children[role, rank].send_signal(signum)

    def stacks(self, role: str, rank: int) -> str:
        """Python stacks of one child, from its log."""
        child = self._children[role, rank]
        if child.peer is None:
            return f"{role}-{rank} has not been started"
        return capture_stacks(child.peer, child.log)

    def process_state(self, role: str, rank: int) -> str | None:
        """The kernel's state letter."""
        return process_state(self._children[role, rank].pid)

    def tracer(self, role: str, rank: int) -> int:
        """The debugger attached to a child."""
        return tracer_pid(self._children[role, rank].pid)

    def say(self, text: str) -> None:
        """A line for people; what the supervisor has to say is never a result."""
        self._console.warn(text)

    def _own_record(self) -> ProcessRecord:
        pid = os.getpid()
        ticks = process_start_ticks(pid) or 0
        return ProcessRecord(role="launcher", rank=0, pid=pid, start_ticks=ticks)

    def _child_records(self) -> Iterator[ProcessRecord]:
        for (role, rank), child in self._children.items():
            if child.pid == 0:  # under --debug, and not started yet
                continue
            yield ProcessRecord(role=role, rank=rank, pid=child.pid, start_ticks=child.start_ticks)


class Loop:
    """Runs one job until its supervisor is done."""

    def __init__(
        self,
        *,
        files: JobFiles,
        children: Sequence[ChildProcess | DebuggedProcess],
        console: Console,
        signals: SignalPipe,
        panel: Panel | None,
        clock: Clock,
        on_attachable: Callable[[], None],
    ) -> None:
        self._files = files
        self._living = list(children)
        self._console = console
        self._signals = signals
        self.panel = panel
        self._on_attachable = on_attachable
        self._board = files.board()
        self._bell = files.bell()
        self._beat = files.beat()
        self._progress = Progress(files.segment("learner_metrics"), clock)
        self._supervisor = Supervisor(
            [Child(role=c.spec.role, rank=c.spec.rank, pid=c.pid) for c in children],
            files.config.training,
            JobDriver(files, children, console),
            clock,
            debugging=files.debug is not None,
        )

    def run(self) -> Outcome:
        """Supervise until every child has ended."""
        supervisor = self._supervisor
        while not supervisor.done:
            self._sleep()
            self._files.require_whole()  # before the first touch, which would be the last
            self._beat.beat()
            for signum in self._signals.take():
                supervisor.signalled(signum)
            # The board first: it holds the last phase of a child that is about to be reaped.
            rows = self._board.rows()
            exits = self._reap()
            if exits:
                supervisor.exits(exits)
            if supervisor.done:
                break
            supervisor.board(rows)
            if supervisor.state is State.STARTING and self._spec_exists():
                supervisor.spec_ready()
                if supervisor.state is State.RUNNING:
                    self._on_attachable()
            supervisor.time_passed()
            self._show()
        if self.panel is None:
            for line in self._progress.lines(last=True):
                self._console.say(line)
        return supervisor.outcome

    def _sleep(self) -> None:
        poll = select.poll()
        # A process to be started by hand has no pidfd before it has registered: its bell tells.
        peers = [child.peer for child in self._living if child.peer is not None]
        watched = [self._bell, self._signals, *peers]
        if self.panel is not None:
            watched.append(self.panel)
        for source in watched:
            poll.register(source.fileno(), select.POLLIN)
        poll.poll(SLICE_MS)
        self._bell.drain()

    def _reap(self) -> list[ChildExit]:
        exits: list[ChildExit] = []
        for child in list(self._living):
            phase = self._board.row(child.spec.role, child.spec.rank).phase
            child_exit = child.reap(phase)
            if child_exit is not None:
                exits.append(child_exit)
                self._living.remove(child)
        return exits

    def _spec_exists(self) -> bool:
        try:
            return self._files.env_spec() is not None
        except RecordInvalid:
            return False

    def _show(self) -> None:
        if self.panel is not None:
            code = self.panel.reap()
            if code is None:
                return
            self.panel = None
            self._console.release()
            if code != 0:
                self._console.warn(f"the panel ended with code {code}; plain lines go on")
            self._progress.skip()
        for line in self._progress.lines():
            self._console.say(line)


def _noted(_signum: int, _frame: FrameType | None) -> None:
    """The wake-up descriptor has the number; a handler is needed for it to be written."""
