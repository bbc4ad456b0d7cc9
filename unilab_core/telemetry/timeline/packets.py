"""The messages of a Perfetto trace that UniLab writes, as bytes.

A trace is a sequence of packets. Every packet of a process carries its sequence number, so the
traces of several processes may simply be concatenated. A `chunk` is what one flush writes:

    synchronisation marker | state cleared, clock, names | events ...

It refers to nothing in earlier chunks but the tracks (which hold for the whole file), so a lost
chunk costs its own events only, and whatever a killed process wrote is readable. Field numbers are
those of perfetto/trace/trace_packet.proto and the messages it includes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from unilab_core.telemetry.timeline.wire import (
    bytes_field,
    double_field,
    fixed64_field,
    text_field,
    uint_field,
    varint,
)

REALTIME, MONOTONIC, BOOTTIME = 1, 3, 6
"""Built-in clock ids."""

SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4
STATE_CLEARED, NEEDS_STATE = 1, 2

# 16 bytes that open every chunk: the last whole one is found from the end of a torn file.
MARKER = bytes.fromhex("0c5b9e41d7f2486ab83e5ac61f7d2094")
MARKER_FIELD = bytes_field(36, MARKER)

FRAME = b"\x0a"
"""Key of `Trace.packet`."""


@dataclass(kw_only=True, slots=True, frozen=True)
class ProcessId:
    """Whose packets these are."""

    name: str
    pid: int
    sequence: int
    """Non-zero, its own in the whole trace."""

    @property
    def uuid(self) -> int:
        """Track of the process; those of its tracks follow it."""
        return self.sequence << 8


def packet(body: bytes) -> bytes:
    """A packet with its frame."""
    return FRAME + varint(len(body)) + body


def clock_packet(process: ProcessId, clocks_ns: Mapping[int, int]) -> bytes:
    """What the clocks showed at one moment: it ties MONOTONIC to the clock of the display."""
    snapshot = b"".join(
        bytes_field(1, uint_field(1, clock) + uint_field(2, time_ns))
        for clock, time_ns in clocks_ns.items()
    )
    return packet(uint_field(10, process.sequence) + bytes_field(6, snapshot))


def process_packet(process: ProcessId) -> bytes:
    """The process that all other tracks belong to."""
    what = uint_field(1, process.pid) + text_field(6, process.name)
    return _track_packet(process, uint_field(1, process.uuid) + bytes_field(3, what))


def thread_packet(process: ProcessId, uuid: int, tid: int, name: str) -> bytes:
    """A track of what one thread does."""
    what = uint_field(1, process.pid) + uint_field(2, tid) + text_field(5, name)
    parent = uint_field(5, process.uuid)
    return _track_packet(process, uint_field(1, uuid) + parent + bytes_field(4, what))


def lane_packet(process: ProcessId, uuid: int, name: str) -> bytes:
    """A track that is no thread."""
    parent = uint_field(5, process.uuid)
    return _track_packet(process, uint_field(1, uuid) + parent + text_field(2, name))


def counter_packet(process: ProcessId, uuid: int, name: str, unit: str) -> bytes:
    """A track of values."""
    parent = uint_field(5, process.uuid)
    what = bytes_field(8, text_field(6, unit))
    return _track_packet(process, uint_field(1, uuid) + parent + text_field(2, name) + what)


def chunk_head(
    process: ProcessId, names: Iterable[tuple[int, str]], categories: Iterable[tuple[int, str]]
) -> bytes:
    """Opens a chunk: marker, then the state that its events need."""
    interned = b"".join(
        bytes_field(number, uint_field(1, iid) + text_field(2, text))
        for number, table in ((1, categories), (2, names))
        for iid, text in table
    )
    state = (
        uint_field(10, process.sequence)
        + uint_field(13, STATE_CLEARED)
        + bytes_field(59, uint_field(58, MONOTONIC))
        + bytes_field(12, interned)
    )
    return packet(MARKER_FIELD) + packet(state)


def head_of_event(process: ProcessId) -> bytes:
    """What every event packet starts with."""
    return uint_field(10, process.sequence) + uint_field(13, NEEDS_STATE)


def begin_fields(uuid: int, name_iid: int, category_iid: int) -> bytes:
    """Constant part of a slice's begin."""
    kind = uint_field(9, SLICE_BEGIN) + uint_field(11, uuid) + uint_field(10, name_iid)
    return kind + uint_field(3, category_iid) if category_iid else kind


def end_fields(uuid: int) -> bytes:
    """A slice's end."""
    return uint_field(9, SLICE_END) + uint_field(11, uuid)


def counter_fields(uuid: int) -> bytes:
    """Constant part of a value on a counter track."""
    return uint_field(9, COUNTER) + uint_field(11, uuid)


def counter_value(value: float) -> bytes:
    """An integer where it is one: shorter, and exact."""
    return uint_field(30, int(value)) if value == int(value) else double_field(44, value)


def flow_fields(flows: Sequence[int], ends: Sequence[int]) -> bytes:
    """Flows that pass through a slice, and those that end in it."""
    return b"".join(fixed64_field(47, flow) for flow in flows) + b"".join(
        fixed64_field(48, flow) for flow in ends
    )


def note_field(name: str, value: int) -> bytes:
    """A number shown with the slice."""
    return bytes_field(4, text_field(10, name) + uint_field(4, value))


def thread_time_field(time_ns: int) -> bytes:
    """CPU time of the thread, in whole us as the format has it."""
    return uint_field(17, time_ns // 1000)


def _track_packet(process: ProcessId, descriptor: bytes) -> bytes:
    return packet(uint_field(10, process.sequence) + bytes_field(60, descriptor))
