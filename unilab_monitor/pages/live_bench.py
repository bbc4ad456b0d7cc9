"""What the pages cost while a run goes on: processor time of the application in a terminal.

The application runs in a process of its own under a pseudo-terminal, as a user would start it; this
process plays the run (`demo_live`) and the user, takes what the application draws, and reads the
processor time of each of its threads from /proc. Shares are percent of one core, start-up and the
change of pages left out:

    cpu_pct        the whole process              rows_per_s         rows written meanwhile
    reader_pct     reading, and making figures    draw_bytes_per_s   written to the terminal
    renderer_pct   pages, layout, drawing

`python -m unilab_monitor.pages.live_bench DIR FILE` is the application that is measured; it writes
the names of its threads to FILE.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unilab_core.telemetry.rl_trace.demo_live import LiveRun
from unilab_core.telemetry.rl_trace.reader import ReaderSettings
from unilab_monitor.pages.trace_app import TraceApp
from unilab_monitor.pages.trace_feed import THREAD_NAME

WRITE_S = 0.05
SETTLE_S = 4.0
"""After a page was chosen."""
START_S = 30.0
TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBenchSettings:
    """How long, and in which terminal."""

    live_s: float
    """Per page."""
    columns: int = 120
    rows: int = 40


class Terminal:
    """The application under a pseudo-terminal, and what it has used so far."""

    def __init__(self, root: Path, names: Path, settings: LiveBenchSettings) -> None:
        self.drawn_bytes = 0
        self._fd, child = pty.openpty()
        size = struct.pack("HHHH", settings.rows, settings.columns, 0, 0)
        fcntl.ioctl(child, termios.TIOCSWINSZ, size)
        command = [sys.executable, "-m", "unilab_monitor.pages.live_bench", str(root), str(names)]
        self._process = subprocess.Popen(
            command, stdin=child, stdout=child, stderr=child, env={**os.environ, **TERMINAL}
        )
        os.close(child)

    def follow(self, run: LiveRun, until_s: float) -> None:
        """Write what is due and take what is drawn until a monotonic time."""
        while (now_s := time.monotonic()) < until_s:
            run.write(time.time() * 1000.0)
            end_s = min(now_s + WRITE_S, until_s)
            while (left_s := end_s - time.monotonic()) > 0:
                if select.select([self._fd], [], [], left_s)[0]:
                    self.drawn_bytes += len(self._read())

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._fd, keys.encode())

    def thread_ns(self) -> dict[int, int]:
        """Thread number to nanoseconds on a processor."""
        folder = Path(f"/proc/{self._process.pid}/task")
        return {
            int(task.name): int((task / "schedstat").read_text().split()[0])
            for task in folder.iterdir()
        }

    def close(self) -> None:
        """End the application."""
        with contextlib.suppress(OSError):
            self.type("q")
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._fd)

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, 1 << 16)
        except OSError as error:
            code = self._process.wait()
            raise RuntimeError(f"the application has ended, exit code {code}") from error


def measure_live(
    root: Path, run: LiveRun, folder: Path, settings: LiveBenchSettings
) -> dict[str, dict[str, float]]:
    """Page to its figures; `folder` is for files of the measurement."""
    names_path = folder / "threads.json"
    terminal = Terminal(root, names_path, settings)
    result = {}
    try:
        deadline_s = time.monotonic() + START_S
        while not names_path.exists():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the application has not started within {START_S:g} s")
            terminal.follow(run, time.monotonic() + 0.5)
        reader = _thread(json.loads(names_path.read_text()), THREAD_NAME)
        for page, presses in _tour(run):
            for keys in presses:
                terminal.type(keys)
                terminal.follow(run, time.monotonic() + 1.0)
            terminal.follow(run, time.monotonic() + SETTLE_S)
            result[page] = _measure(terminal, run, reader, settings.live_s)
    finally:
        terminal.close()
    return result


def _tour(run: LiveRun) -> Iterator[tuple[str, list[str]]]:
    """Page and the keys that lead to it; a trajectory is chosen when it is its turn."""
    yield "progress", ["1"]
    yield "flow", ["2"]
    yield "trace", ["3", "g", run.newest, "\r"]
    yield "trajectory", ["3", "g", "\x7f" * 40, run.finished, "\r", "t"]
    yield "health", ["5"]


def _measure(terminal: Terminal, run: LiveRun, reader: int, live_s: float) -> dict[str, float]:
    before, rows, drawn = terminal.thread_ns(), run.num_rows, terminal.drawn_bytes
    started = time.monotonic()
    terminal.follow(run, started + live_s)
    took_s, after = time.monotonic() - started, terminal.thread_ns()
    used = {thread: ns - before.get(thread, 0) for thread, ns in after.items()}
    total_s, reader_s = sum(used.values()) / 1e9, used[reader] / 1e9
    return {
        "cpu_pct": round(100.0 * total_s / took_s, 2),
        "reader_pct": round(100.0 * reader_s / took_s, 2),
        "renderer_pct": round(100.0 * (total_s - reader_s) / took_s, 2),
        "rows_per_s": round((run.num_rows - rows) / took_s, 1),
        "draw_bytes_per_s": round((terminal.drawn_bytes - drawn) / took_s),
    }


def _thread(names: dict[str, str], wanted: str) -> int:
    return next(int(number) for number, name in names.items() if name == wanted)


class _MeasuredApp(TraceApp):
    """The application, which says once what its threads are called."""

    def __init__(self, root: Path, names: Path) -> None:
        super().__init__(root, ReaderSettings())
        self._names = names

    def on_ready(self) -> None:
        """All threads are there."""
        names = {str(one.native_id): one.name for one in threading.enumerate()}
        fresh = self._names.with_suffix(".part")
        fresh.write_text(json.dumps(names))
        fresh.rename(self._names)


if __name__ == "__main__":
    _MeasuredApp(Path(sys.argv[1]), Path(sys.argv[2])).run()
