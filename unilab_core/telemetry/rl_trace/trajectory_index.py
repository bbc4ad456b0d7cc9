"""Where each trajectory line is, and its summary; the texts stay on disk."""

from __future__ import annotations

import json
import os
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan
from pathlib import Path

import numpy as np

from unilab_core.telemetry.rl_trace.hash_runs import HashRuns
from unilab_core.telemetry.rl_trace.tails import Tail
from unilab_core.telemetry.rl_trace.trajectory_text import (
    PIECE_BYTES,
    WHOLE_LINE_BYTES,
    ParsedLine,
    parse_line,
    parse_pieces,
)
from unilab_core.telemetry.rl_trace.trajectory_view import (
    TrajectorySummary,
    TrajectoryView,
    trajectory_summary,
    trajectory_view,
)

MAX_LINE_BYTES = 256 * 1024 * 1024
MAX_TRAJECTORIES = 2_000_000
LISTED = 200
"""Trajectories in the list of the slowest."""
SUMMARY_CHARS = 64
DETAIL_CHARS = 64 * 1024


@dataclass(frozen=True, slots=True)
class TrajectoryRow:
    """Summary of one trajectory line."""

    entry: int
    id: str
    reward: float | None
    num_turns: int | None
    total_ms: float | None
    step: int | None
    completion_tokens: int | None
    num_bytes: int
    inner_bad: bool


class TrajectoryIndex:
    """One entry per distinct trajectory line, in order of reading."""

    def __init__(self) -> None:
        self.uids: list[str] = []
        self.indices = array("q")
        self.files = array("i")
        self.offsets = array("q")
        self.lengths = array("q")
        self.rewards = array("d")
        self.total_ms = array("d")
        self.num_turns = array("i")
        self.steps = array("q")
        self.completed_s = array("d")
        self.prompt_tokens = array("q")
        self.completion_tokens = array("q")
        self.group_sizes: dict[str, int] = {}
        """Prompt to trajectories per prompt, as the lines say."""
        self.changed_groups: dict[str, None] = {}
        """Prompts whose size is new; whoever takes note clears it."""
        self.paths: dict[int, Path] = {}
        self.inner_bad = array("b")
        self.by_id: dict[tuple[str, int], int] = {}
        """Newest entry of a trajectory."""
        self._slowest: tuple[TrajectoryRow, ...] = ()
        self._ranked = 0
        """Entries that have been compared with the slowest."""
        self._seen = HashRuns()
        self._uid_texts: dict[str, str] = {}
        self._scanned: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.uids)

    def read(self, tail: Tail, max_bytes: int) -> int:
        """Take in complete lines of a file; the number of bytes consumed."""
        self.paths[tail.number] = tail.path
        try:
            fd = os.open(tail.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            tail.damage.unreadable += 1
            return 0
        start = tail.pos
        try:
            while tail.pos - start < max_bytes and self._read_some(fd, tail):
                pass
        except OSError:
            tail.damage.unreadable += 1
        finally:
            os.close(fd)
        return tail.pos - start

    def slowest(self) -> tuple[TrajectoryRow, ...]:
        """Summaries of the trajectories with the longest total time, longest first.

        Only what was added since the last call is compared with those that are listed.
        """
        fresh = np.array(self.total_ms[self._ranked :], dtype=np.float64)
        np.nan_to_num(fresh, copy=False, nan=-1.0)
        wanted = fresh >= (_length(self._slowest[-1]) if self._is_listed_full else -1.0)
        if int(wanted.sum()) > 2 * LISTED:  # what is far behind needs no name
            wanted &= fresh >= np.partition(fresh, -LISTED)[-LISTED]
        entries = np.flatnonzero(wanted) + self._ranked
        self._ranked = len(self)
        if len(entries):
            rows = [*self._slowest, *(self.row(entry) for entry in entries.tolist())]
            rows.sort(key=lambda row: (-_length(row), row.id))
            self._slowest = tuple(rows[:LISTED])
        return self._slowest

    @property
    def _is_listed_full(self) -> bool:
        return len(self._slowest) == LISTED

    def row(self, entry: int) -> TrajectoryRow:
        """Summary of one entry."""
        return TrajectoryRow(
            entry=entry,
            id=f"{self.uids[entry]}/{self.indices[entry]}",
            reward=_or_none(self.rewards[entry]),
            num_turns=None if self.num_turns[entry] < 0 else self.num_turns[entry],
            total_ms=_or_none(self.total_ms[entry]),
            step=None if self.steps[entry] < 0 else self.steps[entry],
            completion_tokens=(
                None if self.completion_tokens[entry] < 0 else self.completion_tokens[entry]
            ),
            num_bytes=self.lengths[entry],
            inner_bad=bool(self.inner_bad[entry]),
        )

    def view(self, entry: int) -> TrajectoryView | None:
        """The whole trajectory, long texts cut; None if the line is gone."""
        parsed = self._parsed(entry, DETAIL_CHARS)
        return None if parsed is None else trajectory_view(parsed.outer, parsed.inner)

    def raw_text(self, entry: int, max_bytes: int = 64 * 1024) -> str:
        """The line as it is in the file, up to `max_bytes`."""
        data = self._bytes(entry, min(self.lengths[entry], max_bytes))
        more = self.lengths[entry] - len(data)
        return data.decode("utf-8", "replace") + (f"… [{more} more bytes]" if more > 0 else "")

    def pretty_json(self, entry: int, max_chars: int = 64 * 1024) -> str:
        """The inner JSON, indented and cut, or the raw text where it is damaged."""
        parsed = self._parsed(entry, 2_000)
        if parsed is None or parsed.inner is None:
            return self.raw_text(entry)
        text = json.dumps(parsed.inner, indent=2, ensure_ascii=False)
        return text if len(text) <= max_chars else text[:max_chars] + "…"

    def _read_some(self, fd: int, tail: Tail) -> bool:
        data = os.pread(fd, WHOLE_LINE_BYTES, tail.pos)
        cut = data.rfind(b"\n") + 1
        if cut:
            self._lines(data[:cut], tail)
            tail.pos += cut
            return True
        if len(data) < WHOLE_LINE_BYTES:
            return False
        return self._long_line(fd, tail)

    def _lines(self, data: bytes, tail: Tail) -> None:
        lines = data.split(b"\n")[:-1]
        offset, entries = tail.pos, []
        for line in lines:
            body = line.removesuffix(b"\r")
            if b"\0" in body:
                tail.damage.nul += 1
                body = body.replace(b"\0", b"")
            if body.strip():
                entries.append((body.removeprefix(b"\xef\xbb\xbf"), offset, len(line)))
            offset += len(line) + 1
        identities = np.array([hash(body) for body, _, _ in entries], dtype=np.int64)
        fresh = self._seen.add(identities).tolist() if entries else []
        for (body, at, length), new in zip(entries, fresh, strict=True):
            if new:
                self._add(parse_line(body), tail, at, length)
            else:
                tail.damage.duplicate += 1

    def _long_line(self, fd: int, tail: Tail) -> bool:
        """A line longer than one piece; False while its end is not on disk yet."""
        at = max(self._scanned.get(tail.number, 0), tail.pos)
        while data := os.pread(fd, PIECE_BYTES, at):
            end = data.find(b"\n")
            if end >= 0:
                break
            at += len(data)
        else:
            self._scanned[tail.number] = at
            return False
        length = at + end - tail.pos
        start, tail.pos = tail.pos, at + end + 1
        if length > MAX_LINE_BYTES:
            tail.damage.oversize += 1
            return True
        check = 0
        for piece in _pieces(fd, start, length):
            check = zlib.crc32(piece, check)
        if self._seen.add(np.array([hash((check, length))], dtype=np.int64))[0]:
            self._add(parse_pieces(_pieces(fd, start, length), SUMMARY_CHARS), tail, start, length)
        else:
            tail.damage.duplicate += 1
        return True

    def _add(self, parsed: ParsedLine | None, tail: Tail, offset: int, length: int) -> None:
        found = None if parsed is None else trajectory_summary(parsed.outer, parsed.inner)
        if parsed is None or found is None:
            tail.damage.malformed += 1
            return
        if len(self.uids) >= MAX_TRAJECTORIES:
            tail.damage.over_limit += 1
            return
        tail.damage.nan += parsed.num_nan
        tail.damage.inner_bad += parsed.inner is None
        uid = self._uid_texts.setdefault(found.uid, found.uid)
        self._name(uid, found)
        self.uids.append(uid)
        self.indices.append(found.index)
        self.files.append(tail.number)
        self.offsets.append(offset)
        self.lengths.append(length)
        self.rewards.append(_or_nan(found.reward))
        self.total_ms.append(_or_nan(found.total_ms))
        self.num_turns.append(found.num_turns if parsed.inner is not None else -1)
        self.steps.append(-1 if found.global_step is None else found.global_step)
        self.completed_s.append(_or_nan(found.completed_s))
        self.prompt_tokens.append(-1 if found.prompt_tokens is None else found.prompt_tokens)
        tokens = found.completion_tokens
        self.completion_tokens.append(-1 if tokens is None else tokens)
        self.inner_bad.append(parsed.inner is None)

    def _name(self, uid: str, found: TrajectorySummary) -> None:
        other = self.by_id.get((uid, found.index))
        if other is None or not (found.completed_s or 0.0) < self.completed_s[other]:
            self.by_id[uid, found.index] = len(self.uids)
        if found.n_samples is not None and 0 < found.n_samples < 2**20:
            before = self.group_sizes.get(uid, 0)
            if found.n_samples > before:
                self.group_sizes[uid] = found.n_samples
                self.changed_groups[uid] = None

    def _parsed(self, entry: int, max_chars: int) -> ParsedLine | None:
        length = self.lengths[entry]
        if length <= WHOLE_LINE_BYTES:
            line = self._bytes(entry, length).removesuffix(b"\r").replace(b"\0", b"")
            return parse_line(line.removeprefix(b"\xef\xbb\xbf"))
        try:
            fd = os.open(self.paths[self.files[entry]], os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return parse_pieces(_pieces(fd, self.offsets[entry], length), max_chars)
        except OSError:
            return None
        finally:
            os.close(fd)

    def _bytes(self, entry: int, num_bytes: int) -> bytes:
        try:
            with open(self.paths[self.files[entry]], "rb") as stream:
                stream.seek(self.offsets[entry])
                return stream.read(num_bytes)
        except OSError:
            return b""


def _pieces(fd: int, offset: int, length: int) -> Iterator[bytes]:
    end = offset + length
    while offset < end and (data := os.pread(fd, min(PIECE_BYTES, end - offset), offset)):
        yield data
        offset += len(data)


def _length(row: TrajectoryRow) -> float:
    return -1.0 if row.total_ms is None else row.total_ms


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _or_none(value: float) -> float | None:
    return None if isnan(value) else value
