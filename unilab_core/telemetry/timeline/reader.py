"""A timeline file as tracks, slices and values: an independent reader of what `recorder` writes.

It knows the messages that UniLab uses and skips all others. A file that ends within a packet is
read up to there. Slices come in the order of their ends, per track properly nested.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from unilab_core.telemetry.timeline import packets
from unilab_core.telemetry.timeline.files import PACKET_KEY
from unilab_core.telemetry.timeline.wire import (
    DamagedTraceError,
    Value,
    as_double,
    fields,
    read_varint,
    signed,
)

READ_BYTES = 1 << 20


@dataclass(kw_only=True, slots=True)
class Track:
    """What a uuid stands for."""

    uuid: int
    name: str
    process: str = ""
    """Name of the process that the track belongs to."""
    kind: str = "lane"
    """process, thread, lane or counter."""
    unit: str = ""
    pid: int | None = None
    tid: int | None = None


@dataclass(kw_only=True, slots=True)
class Slice:
    """One slice."""

    track: Track
    name: str
    tag: str
    start_ns: int
    end_ns: int = 0
    depth: int = 0
    flows: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    notes: dict[str, int] = field(default_factory=dict)
    cpu_ns: int | None = None
    """CPU time of the thread in it."""

    @property
    def duration_ns(self) -> int:
        """Its length."""
        return self.end_ns - self.start_ns


@dataclass(kw_only=True, slots=True)
class CounterValue:
    """One value."""

    track: Track
    time_ns: int
    value: float


class TimelineReader:
    """Reads one file after the other; tracks are known once they have been read.

    Attributes:
        tracks: by uuid.
        num_packets: read so far.
        torn: whether a file ended within a packet.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.tracks: dict[int, Track] = {}
        self.num_packets = 0
        self.torn = False
        self.clocks_ns: list[dict[int, int]] = []
        self._paths = list(paths)
        self._names: dict[int, dict[int, str]] = {}
        self._tags: dict[int, dict[int, str]] = {}
        self._parents: dict[int, int] = {}
        self._open: dict[int, list[tuple[Slice, int | None]]] = {}

    def events(self) -> Iterator[Slice | CounterValue]:
        """All slices and values.

        Raises:
            DamagedTraceError: the file is none of ours, or its middle is damaged.
        """
        for path in self._paths:
            for body in self._packets(path):
                yield from self._packet(body)

    def slices(self) -> Iterator[Slice]:
        """The slices alone."""
        return (event for event in self.events() if isinstance(event, Slice))

    def _packets(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            data, at = b"", 0
            while True:
                end = _body_range(data, at)
                if end is not None:
                    self.num_packets += 1
                    yield data[end[0] : end[1]]
                    at = end[1]
                    continue
                more = file.read(READ_BYTES)
                data, at = data[at:] + more, 0
                if not more:
                    self.torn |= bool(data)
                    return

    def _packet(self, body: bytes) -> Iterator[Slice | CounterValue]:
        time_ns = sequence = 0
        event: Value | None = None
        for number, value in fields(body):
            if number == 8:
                time_ns = _integer(value)
            elif number == 10:
                sequence = _integer(value)
            elif number == 11:
                event = value
            elif number == 12:
                self._intern(sequence, _message(value))
            elif number == 13 and _integer(value) & packets.STATE_CLEARED:
                self._names[sequence], self._tags[sequence] = {}, {}
            elif number == 60:
                self._track(_message(value))
            elif number == 6:
                self._clock(_message(value))
        if event is not None:
            yield from self._event(sequence, time_ns, _message(event))

    def _event(self, sequence: int, time_ns: int, event: bytes) -> Iterator[Slice | CounterValue]:
        kind = uuid = name_iid = tag_iid = 0
        value: float = 0.0
        cpu_ns: int | None = None
        flows: list[int] = []
        ends: list[int] = []
        notes: dict[str, int] = {}
        for number, got in fields(event):
            if number == 9:
                kind = _integer(got)
            elif number == 11:
                uuid = _integer(got)
            elif number == 10:
                name_iid = _integer(got)
            elif number == 3:
                tag_iid = _integer(got)
            elif number == 30:
                value = float(signed(_integer(got)))
            elif number == 44:
                value = as_double(_integer(got))
            elif number == 47:
                flows.append(_integer(got))
            elif number == 48:
                ends.append(_integer(got))
            elif number == 17:
                cpu_ns = _integer(got) * 1000
            elif number == 4:
                notes.update([_note(_message(got))])
        track = self.tracks.get(uuid)
        if track is None:
            raise DamagedTraceError(f"an event on the unknown track {uuid}")
        if kind == packets.COUNTER:
            yield CounterValue(track=track, time_ns=time_ns, value=value)
            return
        opened = self._open.setdefault(uuid, [])
        if kind == packets.SLICE_BEGIN:
            found = Slice(
                track=track,
                name=self._names.get(sequence, {}).get(name_iid, ""),
                tag=self._tags.get(sequence, {}).get(tag_iid, ""),
                start_ns=time_ns,
                depth=len(opened),
                flows=tuple(flows),
                ends=tuple(ends),
                notes=notes,
            )
            opened.append((found, cpu_ns))
        elif kind == packets.SLICE_END and opened:
            found, began_cpu_ns = opened.pop()
            found.end_ns = time_ns
            if cpu_ns is not None and began_cpu_ns is not None:
                found.cpu_ns = cpu_ns - began_cpu_ns
            yield found

    def _intern(self, sequence: int, data: bytes) -> None:
        for number, entry in fields(data):
            table = {1: self._tags, 2: self._names}.get(number)
            if table is None:
                continue
            iid, text = 0, ""
            for part, value in fields(_message(entry)):
                if part == 1:
                    iid = _integer(value)
                elif part == 2:
                    text = _text(value)
            table.setdefault(sequence, {})[iid] = text

    def _track(self, data: bytes) -> None:
        track = Track(uuid=0, name="")
        parent = 0
        for number, value in fields(data):
            if number == 1:
                track.uuid = _integer(value)
            elif number == 2:
                track.name = _text(value)
            elif number == 5:
                parent = _integer(value)
            elif number in (3, 4):
                track.kind = "process" if number == 3 else "thread"
                for part, inner in fields(_message(value)):
                    if part == 1:
                        track.pid = _integer(inner)
                    elif part == 2:
                        track.tid = _integer(inner)
                    elif part == (6 if number == 3 else 5):
                        track.name = _text(inner)
            elif number == 8:
                track.kind = "counter"
                track.unit = next((_text(v) for n, v in fields(_message(value)) if n == 6), "")
        owner = self.tracks.get(parent)
        track.process = track.name if owner is None else owner.name
        self.tracks[track.uuid] = track

    def _clock(self, data: bytes) -> None:
        clocks: dict[int, int] = {}
        for number, value in fields(data):
            if number == 1:
                parts = dict(fields(_message(value)))
                clocks[_integer(parts[1])] = _integer(parts[2])
        self.clocks_ns.append(clocks)


def _body_range(data: bytes, at: int) -> tuple[int, int] | None:
    """Begin and end of the packet at an offset; None while it is not all there."""
    if at >= len(data):
        return None
    if data[at] != PACKET_KEY:
        raise DamagedTraceError(f"not a timeline: byte {data[at]:#x} where a packet should begin")
    try:
        length, start = read_varint(data, at + 1)
    except DamagedTraceError:
        if len(data) - at > 11:
            raise
        return None
    return None if start + length > len(data) else (start, start + length)


def _integer(value: Value) -> int:
    if not isinstance(value, int):
        raise DamagedTraceError("bytes where a number should be")
    return value


def _message(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise DamagedTraceError("a number where a message should be")
    return value


def _text(value: Value) -> str:
    return _message(value).decode(errors="replace")


def _note(data: bytes) -> tuple[str, int]:
    name, value = "", 0
    for number, got in fields(data):
        if number == 10:
            name = _text(got)
        elif number == 4:
            value = signed(_integer(got))
    return name, value
