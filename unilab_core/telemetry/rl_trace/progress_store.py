"""Lines of all progress files with their times; the files' order is the order of their names.

A line's time is `exact` (stamped by the writing process beside the trace), `arrival` (seen while
following the file) or unknown; anchors from the sample flow are added where figures are made.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from unilab_core.telemetry.rl_trace.damage import Damage
from unilab_core.telemetry.rl_trace.progress_lines import Kind, parse_progress_line
from unilab_core.telemetry.rl_trace.tails import MAX_LINE_BYTES

RECENT_TASKS = 120
MAX_LINES = 8_000_000
MAX_TEXTS = 10_000
NO_TIME, ARRIVAL, EXACT = 0, 1, 2
LATE_LINES = 2_000
"""A time for a line that far back is late: what was derived from it is made anew."""


@dataclass(frozen=True, slots=True)
class Task:
    """A finished trajectory as its progress line tells it."""

    line: int
    uid: str
    index: int
    score: float | None
    status: str


@dataclass(slots=True)
class ProgressFile:
    """Lines of one file; `lines` are numbers into the store's columns."""

    name: str
    lines: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    tasks: deque[Task] = field(default_factory=lambda: deque(maxlen=RECENT_TASKS))
    statuses: Counter[str] = field(default_factory=Counter)


class ProgressStore:
    """Columns of all lines, one entry per line, and the files they are in."""

    def __init__(self) -> None:
        self.files: dict[str, ProgressFile] = {}
        self.kind = array("b")
        self.number = array("q")
        self.text = array("i")
        self.disagg = array("b")
        self.value = array("d")
        self.epoch = array("i")
        self.batch = array("q")
        self.when_ms = array("q")
        """Unix ms; 0: unknown."""
        self.source = array("b")
        self.texts: list[str] = []
        self.num_late = 0
        """Times that came long after their line."""
        self.trace_every = 1
        self.newest_ms = 0
        """Latest known time of any line; 0: none known."""
        self._text_ids: dict[str, int] = {}
        self._exact: dict[str, dict[int, int]] = {}

    def add(
        self,
        name: str,
        data: bytes,
        offset: int,
        damage: Damage,
        arrival_ms: int = 0,
        known_arrivals: Mapping[int, int] | None = None,
    ) -> None:
        """Take in complete lines that begin at `offset`; `arrival_ms` 0: not seen arriving."""
        file = self.files.get(name)
        if file is None:
            file = self.files[name] = ProgressFile(name)
        for raw in data.split(b"\n")[:-1]:
            if b"\0" in raw:
                damage.nul += 1
            if raw.strip(b"\0\r \t"):
                arrived = arrival_ms or (known_arrivals or {}).get(offset, 0)
                self._line(file, raw, offset, damage, arrived)
            offset += len(raw) + 1

    def _line(
        self, file: ProgressFile, raw: bytes, offset: int, damage: Damage, arrived_ms: int
    ) -> None:
        if len(raw) > MAX_LINE_BYTES:
            damage.oversize += 1
            return
        line = parse_progress_line(raw)
        if line is None:
            damage.noise += 1
            return
        if len(self.kind) >= MAX_LINES:
            damage.over_limit += 1
            return
        damage.nan += line.bad_value
        number = len(self.kind)
        exact_ms = self._exact.get(file.name, {}).pop(offset, 0)
        self.kind.append(line.kind)
        self.number.append(line.number)
        self.text.append(self._text(line.text) if line.kind is not Kind.TASK else 0)
        self.disagg.append(line.disagg)
        self.value.append(line.value if line.value is not None else float("nan"))
        self.epoch.append(-1 if line.epoch is None else min(line.epoch, 2**31 - 1))
        self.batch.append(-1 if line.batch is None else line.batch)
        self.when_ms.append(exact_ms or arrived_ms)
        self.newest_ms = max(self.newest_ms, exact_ms or arrived_ms)
        self.source.append(EXACT if exact_ms else ARRIVAL if arrived_ms else NO_TIME)
        file.lines.append(number)
        file.offsets.append(offset)
        if line.kind is Kind.TASK:
            status = line.status[:64]
            known = status in file.statuses or len(file.statuses) < 64
            file.statuses[status if known else "(other)"] += 1
            file.tasks.append(Task(number, line.text, line.number, line.value, status))

    def add_times(self, data: bytes, damage: Damage) -> None:
        """Take in lines `file,offset,unix_ms` of the exact-time file."""
        for raw in data.split(b"\n")[:-1]:
            text = raw.decode("ascii", "replace").strip()
            if text.startswith("# trace_every="):
                every = text.partition("=")[2]
                self.trace_every = int(every) if every.isdigit() and len(every) < 10 else 1
                continue
            name, _, rest = text.partition(",")
            offset_text, _, ms_text = rest.partition(",")
            if not (offset_text.isdigit() and ms_text.isdigit() and len(rest) < 40):
                damage.malformed += bool(text)
                continue
            self._exact_time(name, int(offset_text), int(ms_text))

    def arrivals(self, name: str, limit: int) -> dict[int, int]:
        """Offset to arrival time in ms of the newest lines of a file that have one."""
        file = self.files[name]
        return {
            offset: self.when_ms[line]
            for offset, line in zip(file.offsets[-limit:], file.lines[-limit:], strict=True)
            if self.source[line] == ARRIVAL
        }

    def _exact_time(self, name: str, offset: int, unix_ms: int) -> None:
        file = self.files.get(name)
        at = bisect_left(file.offsets, offset) if file is not None else 0
        if file is not None and at < len(file.offsets) and file.offsets[at] == offset:
            line = file.lines[at]
            self.when_ms[line], self.source[line] = unix_ms, EXACT
            self.num_late += line < len(self.kind) - LATE_LINES
            self.newest_ms = max(self.newest_ms, unix_ms)
            return
        waiting = self._exact.setdefault(name, {})
        if len(waiting) < MAX_LINES // 8:
            waiting[offset] = unix_ms

    def _text(self, text: str) -> int:
        number = self._text_ids.get(text)
        if number is None:
            if len(self.texts) >= MAX_TEXTS:
                return self._text_ids[self.texts[-1]]
            number = self._text_ids[text] = len(self.texts)
            self.texts.append(text)
        return number
