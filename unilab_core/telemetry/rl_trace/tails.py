"""Growing files of a trace directory, read in pieces that end at a line break.

A file system shared between hosts delays sizes and does not report remote writes, so each round
lists the folders again, opens a file only to read, and never trusts an old descriptor. Symbolic
links that leave the directory are not followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from unilab_core.telemetry.rl_trace.damage import Damage, total

MAX_LINE_BYTES = 16 * 1024 * 1024
"""A longer line of a sample-flow or progress file is skipped and counted."""
MAX_DAMAGED_FILES = 200


@dataclass(slots=True)
class Tail:
    """One file and how far it has been read."""

    path: Path
    number: int
    """Order of discovery; part of event locations."""
    inode: int = 0
    size: int = 0
    mtime_s: float = 0.0
    pos: int = 0
    """Everything before is consumed."""
    skipping: bool = False
    """Inside a line that is longer than the limit."""
    torn: bool = False
    tried_size: int = -1
    """Size at which the rest held no complete line."""
    damage: Damage = field(default_factory=Damage)

    @property
    def name(self) -> str:
        """File name."""
        return self.path.name

    @property
    def has_news(self) -> bool:
        """Whether there may be a complete line to read."""
        return self.size > self.pos and self.size != self.tried_size

    @property
    def behind_bytes(self) -> int:
        """Bytes on disk that are not consumed, an unfinished last line included."""
        return max(self.size - self.pos, 0)


def read_lines(tail: Tail, max_bytes: int) -> tuple[bytes, int] | None:
    """Complete lines from the current position and where they begin; None: nothing new.

    Never returns part of a line: an unfinished last line waits for its end.
    """
    start = tail.pos
    data = _read(tail, start, max_bytes)
    while data and (cut := data.rfind(b"\n") + 1) == 0:
        if len(data) > MAX_LINE_BYTES or tail.skipping:
            _skip(tail, len(data))
            return b"", start
        more = _read(tail, start + len(data), max(max_bytes, len(data)))
        if not more:
            tail.tried_size = tail.size
            return None
        data += more
    if not data:
        return None
    if tail.skipping:
        head = data.find(b"\n") + 1
        tail.skipping = False
        start += head
        data, cut = data[head:], cut - head
    tail.pos = start + cut
    return data[:cut], start


def mark_torn(tail: Tail) -> None:
    """Count the unfinished last line of a file that will not grow any more, once."""
    torn = tail.behind_bytes > 0
    if torn and not tail.torn:
        tail.damage.torn += 1
    tail.torn = torn or tail.torn


def damaged_files(tails: Iterable[Tail]) -> tuple[tuple[str, Damage], ...]:
    """Files with damage of their own, the worst first."""
    found = []
    for tail in tails:
        count = sum(tail.damage.as_dict().values())
        if count:
            found.append((count, f"{tail.path.parent.name}/{tail.name}", total([tail.damage])))
    found.sort(key=lambda one: (-one[0], one[1]))
    return tuple((name, damage) for _, name, damage in found[:MAX_DAMAGED_FILES])


class Folder:
    """One folder of the trace directory: its files in order of discovery."""

    def __init__(self, root: Path, name: str, suffix: str, numbers: Callable[[], int]) -> None:
        self.path = root / name
        self.exists = False
        self.tails: dict[str, Tail] = {}
        self.ignored: list[str] = []
        self.unreadable = 0
        self._root = root
        self._suffix = suffix
        self._numbers = numbers

    def scan(self) -> bool:
        """List the folder and the sizes; False if a file shrank or was replaced."""
        self.ignored, sound = [], True
        try:
            if not _inside(self.path, self._root):
                raise PermissionError(self.path)
            entries = sorted(os.scandir(self.path), key=lambda entry: entry.name)
        except OSError:
            self.exists = False
            return True
        self.exists = True
        for entry in entries:
            if entry.name.startswith(".") or not entry.name.endswith(self._suffix):
                self.ignored.append(f"{self.path.name}/{entry.name}")
                continue
            try:
                if entry.is_symlink() and not _inside(Path(entry.path), self._root):
                    self.ignored.append(f"{self.path.name}/{entry.name}")
                    continue
                info = entry.stat()
            except OSError:
                self.unreadable += 1
                continue
            if not stat.S_ISREG(info.st_mode):
                self.ignored.append(f"{self.path.name}/{entry.name}")
                continue
            sound &= self._update(entry.name, info)
        return sound

    def _update(self, name: str, info: os.stat_result) -> bool:
        tail = self.tails.get(name)
        if tail is None:
            tail = self.tails[name] = Tail(self.path / name, self._numbers(), info.st_ino)
        sound = info.st_ino == tail.inode and info.st_size >= tail.pos
        tail.size, tail.mtime_s = info.st_size, info.st_mtime
        return sound


def foreign_entries(root: Path, known: frozenset[str]) -> list[str]:
    """Files and folders of the root that do not belong to a trace."""
    try:
        return sorted(entry.name for entry in os.scandir(root) if entry.name not in known)
    except OSError:
        return []


def _read(tail: Tail, offset: int, max_bytes: int) -> bytes:
    try:
        fd = os.open(tail.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        tail.damage.unreadable += 1
        return b""
    try:
        data = os.pread(fd, max_bytes, offset)
    except OSError:
        tail.damage.unreadable += 1
        return b""
    finally:
        os.close(fd)
    tail.size = max(tail.size, offset + len(data))
    return data


def _skip(tail: Tail, num_bytes: int) -> None:
    if not tail.skipping:
        tail.damage.oversize += 1
    tail.skipping = True
    tail.pos += num_bytes


def _inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())
