"""Sample-flow bytes to columns: clean rows as arrays, damaged lines one by one.

A line is clean if it begins with a job that was seen in the file before, has the category
`sample`, holds no second row, and its status, timestamp, sample id and length have the usual form.
This depends on the line and on earlier lines of the same file only, so the result does not depend
on how the bytes arrive. A damaged line that can be understood becomes a row with the same
identity as its clean form; so few lines are taken one by one as well, which costs less than arrays.

Legend: L lines of a piece, n clean lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unilab_core.telemetry.rl_trace.csv_rows import (
    HEADER,
    glued_at,
    parse_row,
    split_sample_id,
)
from unilab_core.telemetry.rl_trace.damage import Damage
from unilab_core.telemetry.rl_trace.flow_ids import BAD_CODE, STATUS_BITS, FlowIds, subject_key
from unilab_core.telemetry.rl_trace.formats import CAT_SAMPLE
from unilab_core.telemetry.rl_trace.span_hash import MAX_SPAN, hash_spans, hash_texts, mix, padded
from unilab_core.telemetry.rl_trace.tails import MAX_LINE_BYTES

MAX_CONTINUATION_LINES = 64
MAX_CONTINUATION_BYTES = 16 * 1024
MAX_OPAQUE = 100_000
MAX_JOBS_PER_FILE = 8
"""Rows of further jobs in one file are parsed one by one."""
LOCATION_BITS = 40
"""An event's location is `file number << LOCATION_BITS | offset`."""

_CAT = CAT_SAMPLE.encode()
_CAT_COLUMN = b"," + _CAT + b","
_CAT_BYTES = np.frombuffer(_CAT_COLUMN, dtype=np.uint8)
_BOM = b"\xef\xbb\xbf"
_USUAL = re.compile(
    rb"(([^,\s][^,]*),sample,([^,]+/(?:\d{1,18}|sample))),"
    rb"(RUNNING|COMPLETE|FAILED|DISCARDED|CANCELLED),(0[1-9]\d{11}|[1-9]\d{12}),"
    rb"([^\"\r\0][^\r\0]*)"
)
"""A line that needs no second look if its job is known and it holds no second row."""
_MS_DIGITS = 13
_POWERS = 10 ** np.arange(_MS_DIGITS - 1, -1, -1, dtype=np.int64)
_STATUS_CHARS = 16
_COMMA, _NEWLINE, _QUOTE = 44, 10, 34

Ints = NDArray[np.int64]


_SingleRow = tuple[bytes, int, bytes, int, int, bytes, int, int]
"""(subject key, job number, sample id, status bits, Unix ms, content, location, clock offset)"""


@dataclass(slots=True)
class Batch:
    """Parsed rows waiting to be folded, as pieces of columns."""

    code: list[Ints] = field(default_factory=list)
    unix_ms: list[Ints] = field(default_factory=list)
    content: list[Ints] = field(default_factory=list)
    status: list[NDArray[np.int8]] = field(default_factory=list)
    identity: list[Ints] = field(default_factory=list)
    location: list[Ints] = field(default_factory=list)
    rows: list[_SingleRow] = field(default_factory=list)
    """Rows that came one by one: resolved together."""
    num_rows: int = 0

    def add(
        self,
        code: Ints,
        unix_ms: Ints,
        content: Ints,
        status: NDArray[np.int8],
        identity: Ints,
        location: Ints,
    ) -> None:
        """Add a piece of each column."""
        self.code.append(code)
        self.unix_ms.append(unix_ms)
        self.content.append(content)
        self.status.append(status)
        self.identity.append(identity)
        self.location.append(location)
        self.num_rows += len(code)

    def resolve(self, ids: FlowIds) -> None:
        """Turn the rows that came one by one into pieces of columns."""
        if not self.rows:
            return
        keys, jobs, sample_ids, status, times, texts, *places = zip(*self.rows, strict=True)
        self.num_rows -= len(self.rows)
        self.rows.clear()
        hashes = hash_texts([*keys, *texts])
        subjects, hashes = hashes[: len(keys)], hashes[len(keys) :]
        codes = list(map(ids.code, subjects.tolist(), jobs, sample_ids))
        contents = list(map(ids.content, hashes.tolist(), texts))
        bits, unix_ms = np.array(status, dtype=np.int8), np.array(times, dtype=np.int64)
        locations, offsets = (np.array(one, dtype=np.int64) for one in places)
        code = np.array(codes, dtype=np.int64)
        kept = code != BAD_CODE
        self.add(
            code[kept],
            (unix_ms + offsets)[kept],
            np.array(contents, dtype=np.int64)[kept],
            bits[kept],
            _identities(subjects, hashes, unix_ms, bits)[kept],
            locations[kept],
        )


@dataclass(slots=True)
class _Piece:
    """A piece of a file as arrays; spans are in bytes of `buffer`."""

    data: bytes
    buffer: NDArray[np.uint8]
    starts: Ints
    """First byte of each line [L]."""
    ends: Ints
    """Line break of each line [L]."""
    commas: NDArray[np.int64]
    """First five commas of each line [L, 5]; only valid where `wide`."""
    wide: NDArray[np.bool_]
    plain: NDArray[np.bool_]
    """Lines without carriage return, NUL or a second row [L]."""


@dataclass(slots=True)
class _Clean:
    """Which lines are clean, and what was found out about those on the way."""

    mask: NDArray[np.bool_]
    subjects: NDArray[np.uint64]
    """Hashes of the rows up to the status column."""
    codes: Ints
    status: NDArray[np.int8]


class ShardParser:
    """Parser of one sample-flow file; keeps what the next line depends on."""

    few_lines = 64
    """So many lines cost about as much one by one as in arrays."""

    def __init__(
        self, ids: FlowIds, batch: Batch, damage: Damage, number: int, offset_ms: int = 0
    ) -> None:
        self.opaque: list[tuple[bytes, int]] = []
        """(sample id, location) of rows of other categories."""
        self._ids = ids
        self._batch = batch
        self._damage = damage
        self._base = number << LOCATION_BITS
        self._offset_ms = offset_ms
        self._jobs: dict[bytes, int] = {}
        self._after_row = False
        self._continued_lines = 0
        self._continued_bytes = 0

    def parse(self, data: bytes, offset: int) -> None:
        """Take in complete lines that begin at `offset` of the file."""
        if not data:
            return
        if data.count(b"\n") <= self.few_lines:
            self._few(data, offset)
            return
        piece = _piece(data)
        first = 0
        while first < len(piece.starts):
            first = self._run(piece, first, offset)

    def _few(self, data: bytes, offset: int) -> None:
        """Lines one by one; most have the usual form."""
        jobs, rows, base = self._jobs, self._batch.rows, self._base
        before, at = len(rows), offset
        for line in data.split(b"\n")[:-1]:
            match = _USUAL.fullmatch(line)
            job = None if match is None else jobs.get(match[2])
            if match is None or job is None or _CAT_COLUMN in match[6]:
                self._batch.num_rows += len(rows) - before
                self._line(line, at)
                before = len(rows)
            else:
                key, _, sample_id, status, digits, content = match.groups()
                bits, ms = STATUS_BITS[status], int(digits)
                row = (key, job, sample_id, bits, ms, content, base + at, self._offset_ms)
                rows.append(row)
                self._row_seen()
            at += len(line) + 1
        self._batch.num_rows += len(rows) - before

    def _run(self, piece: _Piece, first: int, offset: int) -> int:
        """Lines from `first` on; stops, with the next line, when a line names a new job."""
        if not self._jobs:  # nothing is clean yet
            start = int(piece.starts[first])
            self._line(piece.data[start : int(piece.ends[first])], offset + start)
            return first + 1
        found = self._clean(piece, first)
        clean = found.mask
        before, num_jobs = first, len(self._jobs)
        for place in (np.flatnonzero(~clean) + first).tolist():
            if place > before:
                self._row_seen()
            start, end = int(piece.starts[place]), int(piece.ends[place])
            self._line(piece.data[start:end], offset + start)
            before = place + 1
            if len(self._jobs) != num_jobs and len(self._jobs) <= MAX_JOBS_PER_FILE:
                self._bulk(piece, found, np.flatnonzero(clean[: before - first]), first, offset)
                return before
        if before < len(piece.starts):
            self._row_seen()
        self._bulk(piece, found, np.flatnonzero(clean), first, offset)
        return len(piece.starts)

    def _clean(self, piece: _Piece, first: int) -> _Clean:
        """Which lines from `first` on are clean."""
        buffer, starts, commas = piece.buffer, piece.starts[first:], piece.commas[first:]
        clean = piece.wide[first:] & piece.plain[first:]
        known = np.zeros(len(starts), dtype=bool)
        for job in list(self._jobs)[:MAX_JOBS_PER_FILE]:
            prefix = np.frombuffer(job + _CAT_COLUMN, dtype=np.uint8)
            known |= (_rows(buffer, starts, len(prefix)) == prefix).all(axis=1)
        clean &= known
        widths = np.diff(np.column_stack((starts, commas, piece.ends[first:])), axis=1)
        clean &= (widths[:, 4] == _MS_DIGITS + 1) & (widths[:, 3] <= _STATUS_CHARS)
        clean &= (commas[:, 2] - starts <= MAX_SPAN) & (widths[:, 5] <= MAX_SPAN)
        at = np.flatnonzero(clean)
        digits = _rows(buffer, commas[at, 3] + 1, _MS_DIGITS) - np.uint8(48)
        # Below 10^11 a number means seconds, and a quoted content has another text.
        clean[at] = (digits < 10).all(axis=1) & ((digits[:, 0] > 0) | (digits[:, 1] > 0))
        clean &= buffer[commas[:, 4] + 1] != _QUOTE
        at = np.flatnonzero(clean)
        status = np.full(len(clean), -1, dtype=np.int8)
        status[at] = _statuses(buffer, commas[at])
        clean &= status >= 0
        at = np.flatnonzero(clean)
        codes = np.full(len(clean), BAD_CODE, dtype=np.int64)
        subjects = np.zeros(len(clean), dtype=np.uint64)
        subjects[at] = hash_spans(buffer, starts[at], commas[at, 2] - starts[at])
        codes[at] = self._codes(piece, at + first, subjects[at])
        return _Clean(clean & (codes != BAD_CODE), subjects, codes, status)

    def _codes(self, piece: _Piece, lines: Ints, hashes: NDArray[np.uint64]) -> Ints:
        """Subject codes of lines that are clean but for, perhaps, their sample id [n]."""
        starts, commas = piece.starts[lines], piece.commas[lines]
        distinct, where, back = np.unique(hashes, return_index=True, return_inverse=True)
        codes = list(map(self._ids.codes.get, distinct.tolist()))
        for place in [place for place, code in enumerate(codes) if code is None]:
            line = where[place]
            text = piece.data[int(starts[line]) : int(commas[line, 2])]
            job, _, sample_id = text.partition(_CAT_COLUMN)
            codes[place] = self._ids.code(int(distinct[place]), self._jobs[job], sample_id)
        return np.array(codes, dtype=np.int64)[back]

    def _bulk(self, piece: _Piece, found: _Clean, kept: Ints, first: int, offset: int) -> None:
        """Add clean lines (`kept` of `found`, which begins at line `first`) to the batch."""
        if not len(kept):
            return
        lines = kept + first
        buffer, starts, commas = piece.buffer, piece.starts[lines], piece.commas[lines]
        begin, length = commas[:, 4] + 1, piece.ends[lines] - commas[:, 4] - 1
        hashes = hash_spans(buffer, begin, length)
        distinct, where, back = np.unique(hashes, return_index=True, return_inverse=True)
        known = self._ids.contents.ids
        contents = list(map(known.get, distinct.tolist()))
        for place in [place for place, one in enumerate(contents) if one is None]:
            line = where[place]
            text = piece.data[int(begin[line]) : int(begin[line] + length[line])]
            contents[place] = self._ids.content(int(distinct[place]), text)
        digits = _rows(buffer, commas[:, 3] + 1, _MS_DIGITS) - np.uint8(48)
        unix_ms = digits.astype(np.int64) @ _POWERS
        status = found.status[kept]
        self._batch.add(
            found.codes[kept],
            unix_ms + self._offset_ms,
            np.array(contents, dtype=np.int64)[back],
            status,
            _identities(found.subjects[kept], hashes, unix_ms, status),
            self._base + offset + starts,
        )

    def _line(self, line: bytes, offset: int) -> None:
        if len(line) > MAX_LINE_BYTES:
            self._damage.oversize += 1
            return
        if b"\0" in line:
            self._damage.nul += 1
            for text, at in _split_at_nul(line):
                self._line(text, offset + at)
            return
        if line.startswith(_BOM):
            line, offset = line[len(_BOM) :], offset + len(_BOM)
        line = line.removesuffix(b"\r")
        if not line.strip() or line.startswith(HEADER):
            return
        second = glued_at(line, self._jobs) if line.count(_CAT_COLUMN) > 1 else 0
        if second:
            self._damage.glued += 1
            self._line(line[:second], offset)
            self._line(line[second:], offset + second)
        elif not self._row(line, offset):
            self._no_row(line)

    def _row(self, line: bytes, offset: int) -> bool:
        row = parse_row(line)
        if row is None:
            return False
        location = self._base + offset
        if row.cat != _CAT:
            if len(self.opaque) < MAX_OPAQUE:
                self.opaque.append((row.sample_id, location))
        elif split_sample_id(row.sample_id) is None:
            return False
        else:
            self._jobs.setdefault(row.job, self._ids.job(row.job))
            self._damage.unit_fixed += row.unit_fixed
            self._batch.rows.append(
                (
                    subject_key(row.job, row.sample_id),
                    self._jobs[row.job],
                    row.sample_id,
                    STATUS_BITS.get(row.status, 0),
                    min(row.unix_ms, 2**61),
                    row.content,
                    location,
                    self._offset_ms,
                )
            )
            self._batch.num_rows += 1
        self._row_seen()
        return True

    def _row_seen(self) -> None:
        self._after_row = True
        self._continued_lines = self._continued_bytes = 0

    def _no_row(self, line: bytes) -> None:
        self._continued_lines += 1
        self._continued_bytes += len(line)
        begins_row = any(line.startswith(job + b",") for job in self._jobs)
        if (
            self._after_row
            and not begins_row
            and self._continued_lines <= MAX_CONTINUATION_LINES
            and self._continued_bytes <= MAX_CONTINUATION_BYTES
        ):
            self._damage.continuation += 1
            return
        self._damage.malformed += 1
        self._after_row = False


def _piece(data: bytes) -> _Piece:
    buffer = padded(data)
    ends = np.flatnonzero(buffer == _NEWLINE)
    starts = np.concatenate(([0], ends[:-1] + 1))
    commas = np.flatnonzero(buffer == _COMMA)
    first = np.searchsorted(commas, starts)
    wide = np.searchsorted(commas, ends) - first >= 5
    filled = np.concatenate((commas, np.zeros(5, dtype=commas.dtype)))
    plain = np.ones(len(starts), dtype=bool)
    for byte in (b"\r", b"\0"):
        if byte in data:
            at = np.flatnonzero(buffer[: len(data)] == byte[0])
            plain[np.searchsorted(ends, at)] = False
    columns = filled[first[:, None] + np.arange(5)]
    own = wide & (columns[:, 1] - columns[:, 0] == len(_CAT_COLUMN) - 1)
    own[own] = (_rows(buffer, columns[own, 0], len(_CAT_COLUMN)) == _CAT_BYTES).all(axis=1)
    if data.count(_CAT_COLUMN) > int(own.sum()):
        at = [match.start() for match in re.finditer(_CAT_COLUMN, data)]
        plain &= np.bincount(np.searchsorted(ends, at), minlength=len(starts)) == 1
    return _Piece(data, buffer, starts, ends, columns, wide, plain)


def _rows(buffer: NDArray[np.uint8], starts: Ints, width: int) -> NDArray[np.uint8]:
    """`width` bytes from each start [n, width]; the buffer is padded."""
    return np.lib.stride_tricks.sliding_window_view(buffer, width)[starts]


def _statuses(buffer: NDArray[np.uint8], commas: Ints) -> NDArray[np.int8]:
    """Status bits [n]; -1 where the column holds no known status."""
    result = np.full(len(commas), -1, dtype=np.int8)
    width = commas[:, 3] - commas[:, 2] - 1
    for name, bits in STATUS_BITS.items():
        at = np.flatnonzero((width == len(name)) & (result < 0))
        if len(at):
            text = _rows(buffer, commas[at, 2] + 1, len(name))
            same = (text == np.frombuffer(name, dtype=np.uint8)).all(axis=1)
            result[at[same]] = bits
    return result


def _identities(
    subjects: NDArray[np.uint64],
    contents: NDArray[np.uint64],
    unix_ms: Ints,
    status: NDArray[np.int8],
) -> Ints:
    """One hash of a whole row."""
    times = mix(unix_ms.astype(np.uint64) * np.uint64(32) + status.astype(np.uint64))
    return mix(mix(subjects ^ times) + contents).view(np.int64)


def _split_at_nul(line: bytes) -> list[tuple[bytes, int]]:
    pieces, at = [], 0
    for piece in line.split(b"\0"):
        if piece:
            pieces.append((piece, at))
        at += len(piece) + 1
    return pieces
