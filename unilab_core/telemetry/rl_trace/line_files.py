"""Append-only line files behind one bounded queue and one thread. Standard library only.

Callers hand over complete lines and never wait: a full queue, a missing directory, a full disk or
a hung mount costs lines, which are counted, and never an exception or a pause. The thread writes
each line with one `write` on an `O_APPEND` descriptor. A line that the disk took only in part is
closed with a line break before the next one, so that damage stays one line long.

Life cycle: `LineFiles()` starts nothing; the first `put` starts the thread; `close` drains for a
bounded time. After a fork the child starts with its own thread, queue and files.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

RETRY_S = 1.0
"""After a failure a file is not tried again for this long."""
MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is dropped and counted."""


@dataclass(slots=True)
class WriteCounters:
    """What became of the lines of this process."""

    written: int = 0
    dropped_full: int = 0
    """The queue was full."""
    dropped_error: int = 0
    """The operating system refused, or the values could not be encoded."""
    dropped_closed: int = 0
    """Handed over after `close`, or not written within its time."""

    @property
    def dropped(self) -> int:
        """All lines that did not reach a file."""
        return self.dropped_full + self.dropped_error + self.dropped_closed


class LineFile:
    """One destination; `path_at` names the file to be used at a time (Unix seconds)."""

    def __init__(
        self,
        path_at: Callable[[float], Path],
        *,
        exclusive: bool = False,
        after_write: Callable[[Path, int, float], None] | None = None,
    ) -> None:
        self._path_at = path_at
        self._exclusive = exclusive
        self._after_write = after_write
        self._path: Path | None = None
        self._fd = -1
        self._open_end = False
        self._retry_at_s = 0.0

    def write(self, line: bytes, unix_s: float) -> bool:
        """Append one line; False if it did not reach the file as a whole."""
        if time.monotonic() < self._retry_at_s:
            return False
        try:
            self._reopen(unix_s)
            if self._open_end and os.write(self._fd, b"\n") == 1:
                self._open_end = False
            size = os.write(self._fd, line)
            self._open_end = size < len(line)
            if self._after_write is not None and self._path is not None and not self._open_end:
                end = os.lseek(self._fd, 0, os.SEEK_CUR)
                self._after_write(self._path, end - size, unix_s)
        except (OSError, ValueError):
            self._retry_at_s = time.monotonic() + RETRY_S
            self.close()
            return False
        return not self._open_end

    def close(self) -> None:
        """Close the descriptor; the next write opens the file again."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.close(fd)
            except OSError:
                return

    def _reopen(self, unix_s: float) -> None:
        kept = self._path if self._exclusive else None
        path = kept or self._path_at(unix_s)
        if self._fd >= 0 and path == self._path:
            return
        first = path != self._path
        self.close()
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        if self._exclusive and first:
            flags |= os.O_EXCL
        self._fd = os.open(path, flags, 0o644)
        if first:
            self._open_end = False
        self._path = path


class EchoStream:
    """Standard output as one more destination, so that a blocked pipe cannot hold up a caller."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, line: bytes, unix_s: float) -> bool:
        """Print one line; False if the stream refused it."""
        stream = self._stream or sys.stdout
        try:
            stream.write(line.decode("utf-8", "replace"))
            stream.flush()
        except (OSError, ValueError, AttributeError):
            return False
        return True

    def close(self) -> None:
        """The stream belongs to the process and stays open."""


class LineFiles:
    """The queue and the thread shared by all files of one process."""

    def __init__(self, *, max_lines: int = 65_536, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.counters = WriteCounters()
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._reset()

    def put(self, file: LineFile | EchoStream, line: bytes, unix_s: float) -> bool:
        """Hand over one complete line; never waits for the disk. False: dropped, counted."""
        if self._pid != os.getpid():
            file.close()
            self._reset()
        with self._wake:
            if self._closing:
                self.counters.dropped_closed += 1
                return False
            full = len(self._lines) >= self._max_lines
            if full or self._queued_bytes + len(line) > self._max_bytes:
                self.counters.dropped_full += 1
                return False
            self._lines.append((file, line, unix_s))
            self._queued_bytes += len(line)
            self._start()
            self._wake.notify()
        return True

    def flush(self, timeout_s: float = 2.0) -> bool:
        """Wait until everything handed over is written or dropped; False: not within the time."""
        with self._wake:
            return self._wake.wait_for(lambda: not self._lines and not self._busy, timeout_s)

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what is queued for at most `timeout_s`, count the rest as dropped, stop."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)
        with self._wake:
            self.counters.dropped_closed += len(self._lines)
            self._lines.clear()
            self._queued_bytes = 0

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lines: deque[tuple[LineFile | EchoStream, bytes, float]] = deque()
        self._queued_bytes = 0
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._busy = False

    def _start(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="rl-trace", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            self.counters.dropped_error += len(self._lines)
            self._lines.clear()
            self._queued_bytes = 0
            return
        self._thread = thread

    def _run(self) -> None:
        files: set[LineFile | EchoStream] = set()
        while True:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
                self._wake.wait_for(lambda: self._lines or self._closing)
                if not self._lines:
                    break
                file, line, unix_s = self._lines.popleft()
                self._queued_bytes -= len(line)
                self._busy = True
            files.add(file)
            if file.write(line, unix_s):
                self.counters.written += 1
            else:
                self.counters.dropped_error += 1
        for file in files:
            file.close()
