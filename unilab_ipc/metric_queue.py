"""Broadcast of metric records: one writer that never waits, any number of readers, counted loss.

The ring holds framed msgpack maps at ever-growing byte cursors (byte k lives at k modulo B). Before
the writer overwrites anything it moves `oldest_cursor` past it; after a record is complete it moves
`cursor`. A reader copies a record first and then looks at `oldest_cursor` again: if that has passed
the record, the copy may be torn and is thrown away, and the reader continues at the oldest whole
record. The gap in the record numbers is what it has lost (`lapped_count`).

    frame = [length u4][crc32 u4][record number i8][msgpack ...][padding to 8]

# SYNC POINT: retire (oldest_cursor stored before the bytes; checked by readers after their copy)
# SYNC POINT: record (cursor stored after the bytes; read by readers before their copy)

Late attachers start at the oldest record and so get the recent history. Readers need a read-only
mapping. Nothing in the ring is believed: cursors, lengths, checksums and types are checked, and
extension types are refused.
"""

import struct
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any, cast

import msgpack
import numpy as np

from unilab_ipc.memory import Segment

COLLECTOR_RING_BYTES = 1 << 20
LEARNER_RING_BYTES = 4 << 20

_HEAD = struct.Struct("<IIq")
_ALIGN = 8
_ATTEMPTS = 4
_LARGEST_FRACTION = 4  # a record may take at most 1/4 of the ring
_MAX_SEQ = (1 << 63) - 1
_LIMITS = {
    "max_str_len": 1 << 16,
    "max_bin_len": 1 << 16,
    "max_array_len": 1 << 16,
    "max_map_len": 1 << 12,
    "max_ext_len": 0,
}
"""Largest parts of a record that a reader unpacks; beyond them it counts as invalid."""


def ring_dims(capacity_bytes: int = LEARNER_RING_BYTES) -> dict[str, int]:
    """Geometry of a ring that holds `capacity_bytes` of frames."""
    if capacity_bytes < 1024 or capacity_bytes % _ALIGN:
        raise ValueError(f"ring capacity must be a multiple of 8 >= 1024, got {capacity_bytes}")
    return {"B": capacity_bytes}


class RingWriter:
    """The one writer. Belongs to one thread."""

    __slots__ = ("_cursor", "_data", "_frames", "_limit", "_packer", "_seq", "_view")

    def __init__(self, segment: Segment) -> None:
        self._view = segment.view
        self._data = self._view["data"].data
        self._limit = len(self._data) // _LARGEST_FRACTION
        self._packer = msgpack.Packer(use_bin_type=True, default=_plain_number, autoreset=True)
        # A new writer on a used ring cannot trust the frames in it: it starts after them.
        self._cursor = int(self._view["cursor"][()])
        self._seq = int(self._view["written_count"][()])
        self._frames: deque[int] = deque()
        self._view["oldest_cursor"][()] = self._cursor

    @property
    def dropped_count(self) -> int:
        """Records refused because they were too large or could not be packed."""
        return int(self._view["dropped_count"][()])

    def write(self, record: dict[str, Any]) -> bool:
        """Append a record, dropping the oldest; False (and counted) if it cannot be written."""
        try:
            raw = self._packer.pack(record)
        except (TypeError, ValueError, OverflowError, RecursionError):
            self._packer.reset()
            raw = None
        if raw is None or len(raw) + _HEAD.size > self._limit:
            self._view["dropped_count"][()] += 1
            return False
        for _ in self._write_steps(raw):
            pass
        return True

    def _write_steps(self, raw: bytes) -> Iterator[str]:
        start = self._cursor
        frame_bytes = -(-(_HEAD.size + len(raw)) // _ALIGN) * _ALIGN
        self._frames.append(start)
        while start + frame_bytes - self._frames[0] > len(self._data):
            self._frames.popleft()
        # SYNC POINT: retire
        self._view["oldest_cursor"][()] = self._frames[0]
        yield "oldest retired"
        checksum = zlib.crc32(raw, self._seq & 0xFFFFFFFF)
        self._store(start, _HEAD.pack(len(raw), checksum, self._seq))
        yield "head stored"
        self._store(start + _HEAD.size, raw)
        yield "body stored"
        # SYNC POINT: record
        self._view["cursor"][()] = start + frame_bytes
        self._cursor = start + frame_bytes
        self._seq += 1
        self._view["written_count"][()] = self._seq

    def _store(self, cursor: int, raw: bytes) -> None:
        capacity = len(self._data)
        at = cursor % capacity
        first = min(len(raw), capacity - at)
        self._data[at : at + first] = raw[:first]
        if first < len(raw):
            self._data[: len(raw) - first] = raw[first:]


class RingReader:
    """One reader with its own cursor; any number may read at the same time."""

    __slots__ = ("_cursor", "_data", "_next_seq", "_view", "invalid_count", "lapped_count")

    def __init__(self, segment: Segment, from_oldest: bool = True) -> None:
        self._view = segment.view
        self._data = self._view["data"].data
        # Before the first record it is known which one comes next: losing that one counts as well.
        self._next_seq: int | None = 0 if self._word("written_count") == 0 else None
        self.lapped_count = 0
        """Records overwritten before this reader came to them."""
        self.invalid_count = 0
        """Records (or cursors) that were not what a writer of ours stores."""
        self._cursor = self._word("oldest_cursor" if from_oldest else "cursor")

    @property
    def writer_dropped_count(self) -> int:
        """Records the writer refused."""
        return self._word("dropped_count")

    def read(self, max_records: int = 1000) -> list[dict[str, Any]]:
        """The next records, at most `max_records`; never waits."""
        records: list[dict[str, Any]] = []
        for _ in self._read_steps(max_records, records):
            pass
        return records

    def _read_steps(self, max_records: int, records: list[dict[str, Any]]) -> Iterator[str]:
        attempts = 0
        for _ in range(max_records * _ATTEMPTS):
            if len(records) >= max_records:
                return
            # SYNC POINT: record
            cursor = self._word("cursor")
            oldest = self._word("oldest_cursor")
            yield "cursors read"
            if not 0 <= cursor - oldest <= len(self._data) or cursor % _ALIGN or oldest % _ALIGN:
                # The writer moved on between the two loads, or the words are not a writer's.
                attempts += 1
                if attempts > _ATTEMPTS:
                    self.invalid_count += 1
                    return
                continue
            if not oldest <= self._cursor <= cursor:
                self._cursor = oldest
            if self._cursor == cursor:
                return
            frame = self._copy(self._cursor, cursor)
            yield "frame copied"
            # SYNC POINT: retire
            if self._word("oldest_cursor") > self._cursor:
                continue
            if frame is None:
                attempts += 1
                if attempts > _ATTEMPTS:
                    # Its length is not to be trusted either: go on behind the newest record.
                    self.invalid_count += 1
                    self._cursor = cursor
                    attempts = 0
                continue
            attempts = 0
            self._take(frame, records)

    def _copy(self, start: int, cursor: int) -> tuple[int, bytes] | None:
        """(record number, payload) of the frame at `start`, or None if it does not check out."""
        if cursor - start < _HEAD.size:
            return None
        length, checksum, seq = _HEAD.unpack(self._load(start, _HEAD.size))
        if length > cursor - start - _HEAD.size or not 0 <= seq < _MAX_SEQ:
            return None
        raw = self._load(start + _HEAD.size, length)
        if zlib.crc32(raw, seq & 0xFFFFFFFF) != checksum:
            return None
        return seq, raw

    def _take(self, frame: tuple[int, bytes], records: list[dict[str, Any]]) -> None:
        seq, raw = frame
        self._cursor += -(-(_HEAD.size + len(raw)) // _ALIGN) * _ALIGN
        if self._next_seq is not None and seq > self._next_seq:
            self.lapped_count += seq - self._next_seq
        self._next_seq = seq + 1
        record = _unpack(raw)
        if record is None:
            self.invalid_count += 1
        else:
            records.append(record)

    def _load(self, cursor: int, length: int) -> bytes:
        capacity = len(self._data)
        at = cursor % capacity
        first = bytes(self._data[at : at + length])
        missing = length - len(first)
        return first if missing <= 0 else first + bytes(self._data[:missing])

    def _word(self, field: str) -> int:
        return int(self._view[field][()])


def _plain_number(value: object) -> object:
    """Hook of msgpack: numpy scalars become Python numbers, anything else is refused."""
    if isinstance(value, np.generic):
        return cast("object", value.item())
    raise TypeError(f"cannot pack {type(value).__name__}")


def _refuse_extension(code: int, _data: bytes) -> object:
    raise ValueError(f"extension type {code} in a metric record")


def _unpack(raw: bytes) -> dict[str, Any] | None:
    try:
        record: object = msgpack.unpackb(
            raw, raw=False, strict_map_key=True, ext_hook=_refuse_extension, **_LIMITS
        )
    except (ValueError, msgpack.exceptions.UnpackException):
        return None
    return cast("dict[str, Any]", record) if isinstance(record, dict) else None
