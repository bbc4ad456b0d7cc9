"""Append-only line files behind one bounded queue and one thread. Standard library only.

Callers hand over complete lines and never wait: a full queue, a missing directory, a full disk or
a hung mount costs lines, which are counted, and never an exception or a pause. The thread gathers
lines for a twentieth of a second and appends those of one file with one `write` on an `O_APPEND`
descriptor: waking up for every line would take the interpreter away from the caller each time. A
line that the disk took only in part is closed with a line break before the next one, so that damage
stays one line long.

Life cycle: `LineFiles()` starts nothing; the first `put` starts the thread; `close` drains for a
bounded time. After a fork the child starts with its own thread, queue and files.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

RETRY_S = 1.0
"""After a failure a file is not tried again for this long."""
GATHER_S = 0.05
"""Lines wait this long for company; what a reader sees is that much older."""
MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is dropped and counted."""
MAX_WRITE_BYTES = 256 * 1024
"""Lines are gathered up to this size; a longer one is written alone."""

Stamp = tuple[int, float]
"""Offset of a line in its file, and when it was handed over (Unix seconds)."""


@dataclass(slots=True)
class WriteCounters:
    """What became of the lines of this process."""

    written: int = 0
    dropped_full: int = 0
    """The queue was full."""
    dropped_error: int = 0
    """The operating system refused, the values could not be encoded, or the thread is gone."""
    dropped_closed: int = 0
    """Handed over after `close`, or not written within its time."""

    @property
    def dropped(self) -> int:
        """All lines that did not reach a file."""
        return self.dropped_full + self.dropped_error + self.dropped_closed


@dataclass(frozen=True, slots=True)
class Lines:
    """Complete lines that were handed over together."""

    data: bytes
    unix_s: float

    @property
    def count(self) -> int:
        """Number of lines."""
        return self.data.count(b"\n")


class LineFile:
    """One destination; `path_at` names the file to be used at a time (Unix seconds)."""

    def __init__(
        self,
        path_at: Callable[[float], Path],
        *,
        exclusive: bool = False,
        after_write: Callable[[Path, list[Stamp]], None] | None = None,
    ) -> None:
        self._path_at = path_at
        self._exclusive = exclusive
        self._after_write = after_write
        self._path: Path | None = None
        self._fd = -1
        self._open_end = False
        self._retry_at_s = 0.0

    def write(self, pieces: Sequence[Lines]) -> int:
        """Append lines; how many reached the file as a whole."""
        written = 0
        if time.monotonic() < self._retry_at_s:
            return written
        try:
            for path, group in itertools.groupby(pieces, lambda one: self._path_for(one.unix_s)):
                self._open(path)
                for batch in _batches(group):
                    written += self._append(path, batch)
        except (OSError, ValueError):
            self._retry_at_s = time.monotonic() + RETRY_S
            self.close()
        return written

    def close(self) -> None:
        """Close the descriptor; the next write opens the file again."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.close(fd)
            except OSError:
                return

    def _path_for(self, unix_s: float) -> Path:
        kept = self._path if self._exclusive else None
        return kept or self._path_at(unix_s)

    def _open(self, path: Path) -> None:
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

    def _append(self, path: Path, batch: list[Lines]) -> int:
        if self._open_end and os.write(self._fd, b"\n") == 1:
            self._open_end = False
        data = b"".join(one.data for one in batch)
        size = os.write(self._fd, data)
        taken = data[:size]
        self._open_end = bool(taken) and not taken.endswith(b"\n")
        if self._after_write is not None:
            start = os.lseek(self._fd, 0, os.SEEK_CUR) - size
            ends = itertools.accumulate((len(one.data) for one in batch), initial=0)
            stamps = [
                (start + at, one.unix_s)
                for one, at in zip(batch, ends, strict=False)
                if at + len(one.data) <= size
            ]
            self._after_write(path, stamps)
        if size < len(data):
            # The rest is lost: a disk that takes half of a line will not take the next one.
            self._retry_at_s = time.monotonic() + RETRY_S
        return taken.count(b"\n")


class EchoStream:
    """Standard output as a destination; it has a thread of its own, because a pipe may block."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, pieces: Sequence[Lines]) -> int:
        """Print lines; how many were taken."""
        stream = self._stream or sys.stdout
        try:
            stream.write(b"".join(one.data for one in pieces).decode("utf-8", "replace"))
            stream.flush()
        except (OSError, ValueError, AttributeError):
            return 0
        return sum(one.count for one in pieces)

    def close(self) -> None:
        """The stream belongs to the process and stays open."""


class LineFiles:
    """The queue and the thread shared by all files of one process."""

    def __init__(self, *, max_pieces: int = 65_536, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.counters = WriteCounters()
        self._max_pieces = max_pieces
        self._max_bytes = max_bytes
        self._reset()

    def put(self, file: LineFile | EchoStream, data: bytes, unix_s: float) -> bool:
        """Hand over complete lines; never waits for the disk. False: dropped, counted."""
        if self._pid != os.getpid():
            file.close()
            self._reset()
        lines = Lines(data, unix_s)
        with self._wake:
            if self._closing:
                self.counters.dropped_closed += lines.count
                return False
            if not self._start():
                self.counters.dropped_error += lines.count
                return False
            full = len(self._queue) >= self._max_pieces
            if full or self._queued_bytes + len(data) > self._max_bytes:
                self.counters.dropped_full += lines.count
                return False
            self._queue.append((file, lines))
            self._queued_bytes += len(data)
            if self._idle:
                self._idle = False
                self._wake.notify_all()
        return True

    def flush(self, timeout_s: float = 2.0) -> bool:
        """Wait until everything handed over is written or dropped; False: not within the time."""
        with self._wake:
            self._hurry += 1
            self._wake.notify_all()
            done = self._wake.wait_for(lambda: not self._queue and not self._busy, timeout_s)
            self._hurry -= 1
            return done

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what is queued for at most `timeout_s`, count the rest as dropped, stop."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
        with self._wake:
            self.counters.dropped_closed += sum(lines.count for _, lines in self._queue)
            self._queue.clear()
            self._queued_bytes = 0

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._queue: deque[tuple[LineFile | EchoStream, Lines]] = deque()
        self._queued_bytes = 0
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._busy = False
        self._idle = False
        self._hurry = 0

    def _start(self) -> bool:
        """Whether there is a thread that will write; a dead one is not replaced."""
        if self._thread is not None:
            return self._thread.is_alive()
        thread = threading.Thread(target=self._run, name="rl-trace", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        files: set[LineFile | EchoStream] = set()
        while pieces := self._take():
            batches: dict[LineFile | EchoStream, list[Lines]] = {}
            for file, lines in pieces:
                batches.setdefault(file, []).append(lines)
            for file, batch in batches.items():
                files.add(file)
                written = file.write(batch)
                self.counters.written += written
                self.counters.dropped_error += sum(lines.count for lines in batch) - written
        for file in files:
            file.close()

    def _take(self) -> list[tuple[LineFile | EchoStream, Lines]]:
        """Everything that is queued, once there is something; empty at the end."""
        with self._wake:
            self._busy = False
            self._idle = not self._queue
            self._wake.notify_all()
            self._wake.wait_for(lambda: self._queue or self._closing)
            self._wake.wait_for(lambda: self._closing or self._hurry, GATHER_S)
            pieces = list(self._queue)
            self._queue.clear()
            self._queued_bytes = 0
            self._busy = bool(pieces)
            return pieces


def _batches(pieces: Iterable[Lines]) -> list[list[Lines]]:
    """Pieces in runs of at most `MAX_WRITE_BYTES`."""
    batches: list[list[Lines]] = [[]]
    size = 0
    for one in pieces:
        if batches[-1] and size + len(one.data) > MAX_WRITE_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(one)
        size += len(one.data)
    return batches
