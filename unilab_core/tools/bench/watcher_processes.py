"""Processes that look at a job for ``unilab-bench watchers``: monitors, a stopped reader, a storm.

They are stopped (SIGSTOP) while they are not wanted, which spares the job their start.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import pty
import re
import select
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from unilab_core.run.job_segments import open_ring
from unilab_ipc.heartbeat import HeartbeatBoard, board_dims
from unilab_ipc.memory import open_segment
from unilab_ipc.metric_queue import RingReader
from unilab_ipc.peers import process_cpu_s, set_parent_death_signal
from unilab_ipc.registry import JobFolder
from unilab_ipc.segments import HEARTBEAT

JOB = "watched"
NUM_MONITORS = 5
ATTACHES_PER_S = 50.0
START_S = 120.0
"""Longest start of a watcher."""
ROWS, COLUMNS = 44, 140
_DRAWN = re.compile(rb"Iter Wall")


class Watchers:
    """Processes that look at the job, stopped until they are woken."""

    def __init__(self, processes: Sequence[subprocess.Popen], shown: Callable[[], int]) -> None:
        self._processes = processes
        self.shown = shown

    def wake(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def rest(self) -> None:
        """Stop them."""
        self._signal(signal.SIGSTOP)

    def cpu_s(self) -> float:
        """CPU time of all of them, children not included (they have none)."""
        return sum(process_cpu_s(process.pid) for process in self._processes)

    def _signal(self, signum: signal.Signals) -> None:
        for process in self._processes:
            if process.poll() is not None:
                raise RuntimeError(f"a watcher has left with {process.returncode}")
            process.send_signal(signum)


class StoppedReader(Watchers):
    """A reader that exists in the blocks with it only, and is stopped from its first moment on."""

    def __init__(self) -> None:
        super().__init__([], lambda: 0)

    def wake(self) -> None:
        """Attach one and stop it there."""
        process = _child("read", stdout=subprocess.PIPE)
        self._processes = [process]
        out = process.stdout
        assert out is not None
        until(lambda: bool(select.select([out], [], [], 0)[0]), "a reader", process)
        if out.read(1) != b".":
            raise RuntimeError(f"a reader has left with {process.wait()}")
        self._signal(signal.SIGSTOP)

    def rest(self) -> None:
        """Kill it where it stands."""
        processes, self._processes = self._processes, []
        for process in processes:
            left = process.poll()
            _end(process)
            if left is not None:
                raise RuntimeError(f"a reader has left with {left}")


@contextmanager
def _stopped_reader() -> Iterator[Watchers]:
    stopped = StoppedReader()
    try:
        yield stopped
    finally:
        stopped.rest()


@contextmanager
def _monitors() -> Iterator[Watchers]:
    """Five monitors that have drawn the job."""
    processes: list[subprocess.Popen] = []
    with _Screens() as screens:
        try:
            for _ in range(NUM_MONITORS):
                terminal = screens.add()
                processes.append(
                    _child(
                        "monitor",
                        stdin=terminal,
                        stdout=terminal,
                        stderr=terminal,
                        own_session=True,
                    )
                )
                os.close(terminal)
            until(lambda: screens.all_show(_DRAWN), "a drawn monitor", *processes)
            screens.forget()
            watchers = Watchers(processes, screens.num_bytes)
            watchers.rest()
            yield watchers
        finally:
            for process in processes:
                _end(process)


class _Screens:
    """The other ends of the terminals, read by a thread so that nobody waits to draw."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._ends: list[int] = []
        self._shown: dict[int, bytearray] = {}
        self._num_bytes = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._drain, name="screens", daemon=True)

    def __enter__(self) -> _Screens:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()
        self._selector.close()
        for end in self._ends:
            os.close(end)

    def add(self) -> int:
        """A new terminal; the descriptor of the side that a program runs on."""
        end, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._ends.append(end)
        self._shown[end] = bytearray()
        self._selector.register(end, selectors.EVENT_READ)
        return terminal

    def num_bytes(self) -> int:
        """All that was drawn so far."""
        return self._num_bytes

    def all_show(self, pattern: re.Pattern[bytes]) -> bool:
        """Whether it stands on every screen."""
        return all(pattern.search(bytes(shown)) for shown in self._shown.values())

    def forget(self) -> None:
        """Only count from now on."""
        self._shown = {}

    def _drain(self) -> None:
        while not self._closing.is_set():
            for key, _ in self._selector.select(0.1):
                try:
                    data = os.read(key.fd, 1 << 16)
                except OSError:  # EIO: the program has left
                    self._selector.unregister(key.fd)
                    continue
                self._num_bytes += len(data)
                shown = self._shown.get(key.fd)
                if shown is not None:
                    shown += data


@contextmanager
def _storm() -> Iterator[Watchers]:
    """One process that comes and goes; it counts in a file that both have open."""
    with tempfile.TemporaryFile() as counter:
        counter.write(bytes(8))
        counter.flush()
        process = _child("storm", str(counter.fileno()), pass_fds=[counter.fileno()])

        def count() -> int:
            return int.from_bytes(os.pread(counter.fileno(), 8, 0), "little")

        try:
            until(lambda: count() > 0, "the storm", process)
            watchers = Watchers([process], count)
            watchers.rest()
            yield watchers
        finally:
            _end(process)


def launch_record() -> dict[str, Any]:
    """The launch.json of the job, which is running."""
    record = JobFolder.open(JOB).read_json("launch.json")
    assert record is not None
    return record


def until(ask: Callable[[], bool], what: str, *processes: subprocess.Popen) -> None:
    """Wait for something that `processes` bring about.

    Raises:
        RuntimeError: one of them has left, or it takes too long.
    """
    deadline_s = time.monotonic() + START_S
    while not ask():
        for process in processes:
            if process.poll() is not None:
                raise RuntimeError(f"{what}: the process has left with {process.returncode}")
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"no sign of {what} in {START_S:.0f} s")
        time.sleep(0.05)


def _child(
    *words: str,
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
    own_session: bool = False,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(os.getpid()), *words],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=own_session,
        pass_fds=pass_fds,
    )


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _draw() -> None:
    """Become a monitor."""
    os.environ["TERM"] = "xterm-256color"
    os.execv(sys.executable, [sys.executable, "-m", "unilab_monitor", JOB])


def _read_until_killed() -> None:
    """Attach to the learner's ring, say so, and read what comes until killed."""
    segment = open_ring(launch_record(), "learner", readonly=True)
    reader = RingReader(segment)
    reader.read(1)
    os.write(1, b".")
    while True:
        time.sleep(0.5)
        reader.read()


def _come_and_go(counter: int) -> None:
    """Attach and let go until killed, at a steady pace."""
    due_s = time.monotonic()
    for number in itertools.count(1):
        launch = launch_record()
        dims = board_dims(launch["ranks"])
        board = open_segment(HEARTBEAT, launch["board"], dims, readonly=True)
        rings = [open_ring(launch, role, readonly=True) for role in ("learner", "collector")]
        list(HeartbeatBoard(board).rows())
        for ring in rings:
            RingReader(ring).read(1)
        for segment in (board, *rings):
            segment.close()
        os.pwrite(counter, number.to_bytes(8, "little"), 0)
        due_s = max(due_s + 1.0 / ATTACHES_PER_S, time.monotonic() - 1.0 / ATTACHES_PER_S)
        time.sleep(max(due_s - time.monotonic(), 0.0))


WATCHERS: dict[str, Callable[[], AbstractContextManager[Watchers]]] = {
    "reader": _stopped_reader,
    "monitors": _monitors,
    "storm": _storm,
}
"""Context managers by kind; the watchers that they give are at rest."""

if __name__ == "__main__":
    # Killed, because one that is stopped hears nothing else; this lasts beyond execv.
    set_parent_death_signal(int(sys.argv[1]), signal.SIGKILL)
    match sys.argv[2:]:
        case ["monitor"]:
            _draw()
        case ["read"]:
            _read_until_killed()
        case ["storm", counter]:
            _come_and_go(int(counter))
