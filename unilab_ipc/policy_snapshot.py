"""Weights from the learner to the collector: newest wins, nothing queues, nothing torn is used.

    learner: publication s into cell s modulo 2          collector
    cell_seq = -1            # SYNC POINT: cell retired
    values, versions, checksum
    cell_seq = s
    newest_seq = s           # SYNC POINT: snapshot      newest_seq -> cell_seq -> private copy
    ring the collector                                   cell_seq again, then the checksum

The learner never waits for the reader. The reader copies first and then looks whether the cell was
rewritten meanwhile; such a copy is thrown away and counted (`torn_count`), and after a few attempts
the reader keeps the version it has (`kept_count`) until it is asked again. A learner that died
inside a cell leaves the other cell, and whatever the reader holds, intact.

The checksum is a sum of 8-byte words, ten times as fast as a CRC: it has to tell a mixture of two
publications from one, not to find swapped words.

Symbols: P parameters (float32, one flat vector in an order both sides agree on).
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unilab_ipc.errors import SegmentCorrupt
from unilab_ipc.memory import Segment
from unilab_ipc.slot_ring import no_bell

_ATTEMPTS = 4
_STAMP = struct.Struct("<qqq")
_MAX_SEQ = (1 << 62) - 1
_CHECKSUM_MASK = (1 << 63) - 1


def snapshot_dims(num_values: int) -> dict[str, int]:
    """Geometry for a policy of `num_values` float32 values."""
    if num_values < 1:
        raise ValueError(f"num_values must be >= 1, got {num_values}")
    return {"P": num_values}


@dataclass(slots=True, frozen=True)
class Snapshot:
    """A complete publication, in the reader's own memory until its next successful fetch."""

    values: NDArray[Any]
    """[P], read-only"""
    version: int
    normaliser_version: int
    seq: int


class SnapshotWriter:
    """The learner's side."""

    __slots__ = ("_ring_peer", "_seq", "_view")

    def __init__(self, segment: Segment, ring_peer: Callable[[], None] = no_bell) -> None:
        self._view = segment.view
        self._ring_peer = ring_peer
        self._seq = int(self._view["newest_seq"][()])
        if not -1 <= self._seq < _MAX_SEQ:
            raise SegmentCorrupt(f"newest_seq in [-1, {_MAX_SEQ})", str(self._seq))

    def publish(self, values: NDArray[Any], version: int, normaliser_version: int = -1) -> None:
        """Make `values` [P] the newest policy; never waits."""
        for _ in self._publish_steps(values, version, normaliser_version):
            pass

    def _publish_steps(
        self, values: NDArray[Any], version: int, normaliser_version: int
    ) -> Iterator[str]:
        view = self._view
        seq = self._seq + 1
        cell = seq % 2
        target = view["values"][cell]
        if values.shape != target.shape:
            raise ValueError(f"snapshot values must have shape {target.shape}, got {values.shape}")
        # SYNC POINT: cell retired
        view["cell_seq"][cell] = -1
        yield "cell retired"
        middle = len(target) // 2
        target[:middle] = values[:middle]
        yield "half a cell written"
        target[middle:] = values[middle:]
        view["cell_version"][cell] = version
        view["cell_normaliser"][cell] = normaliser_version
        view["cell_checksum"][cell] = _checksum(target, seq, version, normaliser_version)
        yield "cell written"
        view["cell_seq"][cell] = seq
        # SYNC POINT: snapshot
        view["newest_seq"][()] = seq
        self._seq = seq
        yield "snapshot published"
        self._ring_peer()


class SnapshotReader:
    """The collector's side. Reads only, so a read-only mapping suffices."""

    __slots__ = ("_last", "_spare", "_view", "kept_count", "torn_count")

    def __init__(self, segment: Segment) -> None:
        self._view = segment.view
        self._spare = np.zeros(segment.dims["P"], np.float32)
        self._last: Snapshot | None = None
        self.torn_count = 0
        """Copies thrown away because the cell changed under them."""
        self.kept_count = 0
        """Fetches that gave up and kept the version they had."""

    @property
    def last(self) -> Snapshot | None:
        """The last good snapshot, None before the first."""
        return self._last

    def try_fetch(self) -> Snapshot | None:
        """A snapshot newer than `last`, or None (nothing newer, or no whole copy this time)."""
        found: list[Snapshot] = []
        for _ in self._fetch_steps(found):
            pass
        return found[0] if found else None

    def _fetch_steps(self, found: list[Snapshot]) -> Iterator[str]:
        last_seq = -1 if self._last is None else self._last.seq
        for _ in range(_ATTEMPTS):
            # SYNC POINT: snapshot
            seq = int(self._view["newest_seq"][()])
            if not -1 <= seq <= _MAX_SEQ:
                raise SegmentCorrupt(f"newest_seq in [-1, {_MAX_SEQ}]", str(seq))
            if seq <= last_seq:
                return
            yield "newest read"
            cell = seq % 2
            if int(self._view["cell_seq"][cell]) == seq:
                source, middle = self._view["values"][cell], len(self._spare) // 2
                self._spare[:middle] = source[:middle]
                yield "half a copy"
                self._spare[middle:] = source[middle:]
                version = int(self._view["cell_version"][cell])
                normaliser = int(self._view["cell_normaliser"][cell])
                checksum = int(self._view["cell_checksum"][cell])
                yield "copied"
                # SYNC POINT: cell retired
                same = int(self._view["cell_seq"][cell]) == seq
                if same and checksum == _checksum(self._spare, seq, version, normaliser):
                    self._keep(version, normaliser, seq)
                    assert self._last is not None
                    found.append(self._last)
                    return
            self.torn_count += 1
        self.kept_count += 1

    def _keep(self, version: int, normaliser_version: int, seq: int) -> None:
        """Make the spare copy the last good one; the memory of the one before becomes the spare."""
        values = self._spare
        if self._last is None:
            self._spare = np.zeros_like(values)
        else:
            self._spare = self._last.values
            self._spare.flags.writeable = True
        values.flags.writeable = False
        self._last = Snapshot(values, version, normaliser_version, seq)


def _checksum(values: NDArray[Any], seq: int, version: int, normaliser_version: int) -> int:
    even = len(values) // 2 * 2
    total = int(np.add.reduce(values[:even].view("<u8")))
    total += zlib.crc32(
        values[even:].data, zlib.crc32(_STAMP.pack(seq, version, normaliser_version))
    )
    return total & _CHECKSUM_MASK
