"""The core of the two experience rings: D slots, one producer, one consumer, nothing ever lost.

    producer                                    consumer
    try_claim() -> slot      <-- released ---   # SYNC POINT: release
    fill the slot
    commit()                 -- published -->   try_acquire() -> slot
    (or abort(): as if never claimed)           read it
                                                release()

`published_count` and `released_count` only grow; slot k of the ring holds sequence k modulo D. The
producer owns slots [published, released + D), the consumer [released, published). A full ring is
back-pressure: `try_claim` returns None and the producer waits (and counts it). A crash between any
two stores leaves either the old or the new count, so a slot is delivered whole or not at all.

# SYNC POINT: publish (published_count stored after payload, seq and checksum; read in try_acquire)
# SYNC POINT: release (released_count stored after the last read of the slot; read in try_claim)

Neither side believes the other's count: a difference outside [0, D], a count that went back, or a
slot whose own sequence word disagrees is SegmentCorrupt. With `debug=True` the producer stores a
CRC-32 that the consumer verifies, and released slots are filled with NaN and 255.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from unilab_ipc.errors import Closed, IpcError, SegmentCorrupt
from unilab_ipc.memory import Segment

_SNAPSHOT_ATTEMPTS = 8
_NO_CHECKSUM = -1
_MAX_COUNT = 1 << 62
"""No ring gets this far; a count beyond it is damage, and adding to it could overflow."""


class SlotViews(Protocol):
    """The arrays of one slot; `seq` is set by claim and acquire."""

    seq: int

    def payload(self) -> tuple[NDArray[Any], ...]:
        """Every array of the slot, in the order of the layout."""
        ...


S = TypeVar("S", bound=SlotViews)


@dataclass(slots=True, frozen=True)
class RingCounts:
    """One consistent look at a ring's counters."""

    published: int
    released: int
    occupancy: int
    high_water: int
    backpressure_waits: int
    backpressure_wait_ns: int
    closed_returns: int
    stop_returns: int


class SlotProducer(Generic[S]):
    """Writing side; at most one claim at a time."""

    __slots__ = (
        "_claimed",
        "_debug",
        "_published",
        "_released_before",
        "_ring_peer",
        "_slots",
        "_view",
    )

    def __init__(
        self, segment: Segment, slots: Sequence[S], ring_peer: Callable[[], None], debug: bool
    ) -> None:
        self._view = segment.view
        self._slots = slots
        self._ring_peer = ring_peer
        self._debug = debug
        self._published = int(self._view["published_count"][()])
        self._released_before = 0
        self._claimed: S | None = None
        self._released()

    @property
    def closed(self) -> bool:
        """Whether the consumer takes nothing more."""
        return bool(self._view["closed"][()])

    @property
    def remaining_capacity(self) -> int:
        """Slots that could be claimed and committed now."""
        return len(self._slots) - (self._published - self._released())

    def try_claim(self) -> S | None:
        """A free slot to fill, or None when the ring is full; Closed once the consumer closed."""
        if self._claimed is not None:
            raise IpcError("claim while an earlier claim is neither committed nor aborted")
        if self._view["closed"][()]:
            raise Closed("the reader closed the ring")
        # SYNC POINT: release
        if self.remaining_capacity == 0:
            return None
        slot = self._slots[self._published % len(self._slots)]
        slot.seq = self._published
        self._claimed = slot
        return slot

    def commit(self) -> None:
        """Hand the claimed slot to the consumer."""
        for _ in self._commit_steps():
            pass

    def abort(self) -> None:
        """Give the claimed slot back unpublished."""
        self._take_claim("abort")

    def note_wait(self, wait_ns: int) -> None:
        """Count time spent waiting for a free slot; zero is no wait."""
        if wait_ns > 0:
            self._view["backpressure_wait_ns"][()] += wait_ns
            self._view["backpressure_waits"][()] += 1

    def note_drop(self, reason: Literal["closed", "stop"]) -> None:
        """Count an item that was given up because the ring closed or the job stops."""
        self._view["closed_returns" if reason == "closed" else "stop_returns"][()] += 1

    def _commit_steps(self) -> Iterator[str]:
        slot = self._take_claim("commit")
        view = self._view
        seq = self._published
        index = seq % len(self._slots)
        view["checksum"][index] = _checksum(slot) if self._debug else _NO_CHECKSUM
        view["seq"][index] = seq
        occupancy = seq + 1 - self._released()
        if occupancy > view["high_water"][()]:
            view["high_water"][()] = occupancy
        yield "slot written"
        # SYNC POINT: publish
        view["published_count"][()] = seq + 1
        self._published = seq + 1
        yield "slot published"
        self._ring_peer()

    def _take_claim(self, action: str) -> S:
        slot = self._claimed
        if slot is None:
            raise IpcError(f"{action} without a claim")
        self._claimed = None
        return slot

    def _released(self) -> int:
        released = int(self._view["released_count"][()])
        if not 0 <= self._published <= _MAX_COUNT:
            raise SegmentCorrupt(f"published_count in [0, {_MAX_COUNT}]", str(self._published))
        lowest = max(self._released_before, self._published - len(self._slots))
        if not lowest <= released <= self._published:
            raise SegmentCorrupt(f"released_count in [{lowest}, {self._published}]", str(released))
        self._released_before = released
        return released


class SlotConsumer(Generic[S]):
    """Reading side; at most one acquired slot at a time, in order."""

    __slots__ = (
        "_acquired",
        "_debug",
        "_published_before",
        "_released",
        "_ring_peer",
        "_slots",
        "_view",
    )

    def __init__(
        self, segment: Segment, slots: Sequence[S], ring_peer: Callable[[], None], debug: bool
    ) -> None:
        self._view = segment.view
        self._slots = slots
        self._ring_peer = ring_peer
        self._debug = debug
        self._released = int(self._view["released_count"][()])
        self._published_before = 0
        self._acquired: S | None = None
        self._published()

    @property
    def occupancy(self) -> int:
        """Committed slots that were not released yet."""
        return self._published() - self._released

    def try_acquire(self) -> S | None:
        """The oldest committed slot, or None."""
        if self._acquired is not None:
            raise IpcError("acquire while an earlier slot is not released")
        # SYNC POINT: publish
        if self._published() == self._released:
            return None
        seq = self._released
        index = seq % len(self._slots)
        slot = self._slots[index]
        found = int(self._view["seq"][index])
        if found != seq:
            raise SegmentCorrupt(f"sequence {seq} in slot {index}", str(found))
        stored = int(self._view["checksum"][index])
        if stored != _NO_CHECKSUM and stored != _checksum(slot):
            raise SegmentCorrupt(f"checksum {stored} in slot {index}", str(_checksum(slot)))
        slot.seq = seq
        self._acquired = slot
        return slot

    def release(self) -> None:
        """Give the acquired slot back to the producer."""
        for _ in self._release_steps():
            pass

    def close(self) -> None:
        """Take nothing more: the producer's next claim raises Closed."""
        self._view["closed"][()] = 1
        self._ring_peer()

    def _release_steps(self) -> Iterator[str]:
        slot = self._acquired
        if slot is None:
            raise IpcError("release without an acquired slot")
        self._acquired = None
        if self._debug:
            _fill_with_poison(slot)
        yield "slot read"
        # SYNC POINT: release
        self._view["released_count"][()] = self._released + 1
        self._released += 1
        yield "slot released"
        self._ring_peer()

    def _published(self) -> int:
        published = int(self._view["published_count"][()])
        if not 0 <= self._released <= _MAX_COUNT:
            raise SegmentCorrupt(f"released_count in [0, {_MAX_COUNT}]", str(self._released))
        lowest = max(self._published_before, self._released)
        highest = self._released + len(self._slots)
        if not lowest <= published <= highest:
            raise SegmentCorrupt(f"published_count in [{lowest}, {highest}]", str(published))
        self._published_before = published
        return published


def ring_counts(segment: Segment) -> RingCounts:
    """Counters for gauges; works on a read-only mapping and while both sides run."""
    view = segment.view
    released = int(view["released_count"][()])
    published = int(view["published_count"][()])
    for _ in range(_SNAPSHOT_ATTEMPTS):
        again = int(view["released_count"][()])
        if again == released:
            break
        released = again
        published = int(view["published_count"][()])
    depth = segment.dims["D"]
    return RingCounts(
        published=published,
        released=released,
        occupancy=min(max(published - released, 0), depth),
        high_water=int(view["high_water"][()]),
        backpressure_waits=int(view["backpressure_waits"][()]),
        backpressure_wait_ns=int(view["backpressure_wait_ns"][()]),
        closed_returns=int(view["closed_returns"][()]),
        stop_returns=int(view["stop_returns"][()]),
    )


def no_bell() -> None:
    """For a peer that is woken by something else anyway."""


def _checksum(slot: SlotViews) -> int:
    value = 0
    for array in slot.payload():
        value = zlib.crc32(array.data, value)
    return value


def _fill_with_poison(slot: SlotViews) -> None:
    for array in slot.payload():
        if array.dtype.kind == "f":
            array[...] = np.nan
        else:
            array[...] = np.iinfo(array.dtype).max if array.dtype.kind == "u" else -1
