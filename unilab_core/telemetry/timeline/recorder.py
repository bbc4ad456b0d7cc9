"""Timeline events of one process into one file: streamed, bounded, complete up to the last flush.

    training thread --tuple--> deque (bounded) --every half second--> thread: encode, append a chunk

Recording an event is one append. A full queue or a failing disk costs events, counted and shown on
the counter track "Events Lost", never training. The file grows by whole chunks (see `packets`); a
write that fails in the middle is cut off again, and a process that is killed loses what it recorded
since the last flush. `close` writes the rest.

Events carry their begin and end, so a slice is either there or not. Owned by the process's main
thread; all times are CLOCK_MONOTONIC ns.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from unilab_core.telemetry.timeline import packets
from unilab_core.telemetry.timeline.wire import varint

FLUSH_INTERVAL_S = 0.5
NS_PER_MS = 1_000_000
MAX_PENDING = 200_000
"""Some 40 MB, or a minute of a disk that stands still."""

WRITER_CPU = "Writer CPU"
"""Counter of the CPU time that this file has cost its thread."""

Span = tuple[str, str, int, int]
"""A nested slice: name, tag, begin and end."""
CpuTimes = tuple[int, int]
"""CPU time of the thread at begin and end of a slice, ns."""

_PAIRS = [bytes((i & 0x7F | 0x80, i >> 7 | 0x80)) for i in range(1 << 14)]
_TIMESTAMP_KEY = b"\x40"
_TRACK_EVENT_KEY = b"\x5a"

_log = logging.getLogger(__name__)


class Lane:
    """A track that slices are put on."""

    __slots__ = ("_is_thread", "_recorder", "_uuid")

    def __init__(self, recorder: "TraceRecorder", uuid: int, *, is_thread: bool) -> None:
        self._recorder = recorder
        self._uuid = uuid
        self._is_thread = is_thread

    def slice(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        tag: str = "",
        flows: Sequence[int] = (),
        ends: Sequence[int] = (),
        parts: Sequence[Span] = (),
        note: tuple[str, int] | None = None,
        cpu: CpuTimes | None = None,
    ) -> None:
        """Record a finished slice.

        Args:
            name: as shown.
            start_ns: begin.
            end_ns: end.
            tag: the metric that this slice is a value of, kept as its category.
            flows: ids of the arrows that pass through it.
            ends: ids of the arrows that end in it.
            parts: slices inside it, in order.
            note: a named number.
            cpu: CPU time of the thread at both ends.
        """
        self._recorder.append(
            (
                self._uuid,
                name,
                tag,
                start_ns,
                end_ns,
                flows,
                ends,
                parts,
                note,
                cpu,
                self._is_thread,
            )
        )


class CounterLane:
    """A track that values are put on."""

    __slots__ = ("_recorder", "uuid")

    def __init__(self, recorder: "TraceRecorder", uuid: int) -> None:
        self.uuid = uuid
        self._recorder = recorder

    def set(self, time_ns: int, value: float) -> None:
        """The value from this moment on."""
        self._recorder.append((self.uuid, time_ns, value))


class TraceRecorder:
    """The timeline of one process; see the module docstring."""

    def __init__(
        self,
        path: Path,
        process: packets.ProcessId,
        *,
        flush_interval_s: float = FLUSH_INTERVAL_S,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self.path = path
        self.lost_count = 0
        """Events lost: the queue was full, or the disk refused them."""
        self.error_count = 0
        """Failed attempts to open or write the file."""
        self._process = process
        self._max_pending = max_pending
        self._flush_interval_s = flush_interval_s
        self._events: deque[tuple] = deque()
        self._tracks: list[bytes] = [packets.process_packet(process)]
        self._num_tracks = 0
        self._lock = threading.Lock()
        self._encoder = _Encoder(process)
        self._file: int | None = None
        self._good_bytes = 0
        self._failing = False
        self._stop = threading.Event()
        self._lost_lane = self.counter("Events Lost", "events")
        self._cpu_lane = self.counter(WRITER_CPU, "ms")
        self._reported_lost = 0
        self._thread = threading.Thread(target=self._run, name="timeline", daemon=True)
        self._thread.start()

    def thread_lane(self, name: str) -> Lane:
        """The track of the calling thread."""
        uuid = self._new_uuid()
        tid = threading.get_native_id()
        self._declare(packets.thread_packet(self._process, uuid, tid, name))
        return Lane(self, uuid, is_thread=True)

    def lane(self, name: str) -> Lane:
        """A track that is no thread."""
        uuid = self._new_uuid()
        self._declare(packets.lane_packet(self._process, uuid, name))
        return Lane(self, uuid, is_thread=False)

    def counter(self, name: str, unit: str) -> CounterLane:
        """A track of values."""
        uuid = self._new_uuid()
        self._declare(packets.counter_packet(self._process, uuid, name, unit))
        return CounterLane(self, uuid)

    def append(self, event: tuple) -> None:
        """Queue an event; called by the lanes."""
        if len(self._events) < self._max_pending:
            self._events.append(event)
        else:
            self.lost_count += 1

    def close(self, timeout_s: float = 5.0) -> bool:
        """Write what is pending and end the thread; False when the time did not suffice."""
        self._stop.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _new_uuid(self) -> int:
        self._num_tracks += 1
        return self._process.uuid + self._num_tracks

    def _declare(self, track: bytes) -> None:
        with self._lock:
            self._tracks.append(track)

    def _run(self) -> None:
        stopping = False
        while not stopping:
            stopping = self._stop.wait(self._flush_interval_s)
            # Popped one by one: exchanging the queue could lose an event that is being appended.
            events = [self._events.popleft() for _ in range(len(self._events))]
            num_events = len(events)
            try:
                self._write(events)
                self._count_success()
            except OSError as error:
                self._count_failure(num_events, error)
        if self._file is not None:
            os.close(self._file)

    def _write(self, events: list[tuple]) -> None:
        if self._file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o644)
        if self._good_bytes == 0:
            self._append(packets.clock_packet(self._process, _clocks_ns()))
        if self.lost_count != self._reported_lost:
            self._reported_lost = self.lost_count
            events.append((self._lost_lane.uuid, time.monotonic_ns(), self.lost_count))
        if events:
            cpu_ms = time.thread_time_ns() / NS_PER_MS
            events.append((self._cpu_lane.uuid, time.monotonic_ns(), cpu_ms))
        with self._lock:
            tracks = list(self._tracks)
        data = b"".join(tracks)
        if events:
            data += self._encoder.chunk(events)
        if data:
            self._append(data)
        with self._lock:
            del self._tracks[: len(tracks)]

    def _append(self, data: bytes) -> None:
        """All or nothing: a reader never meets half a packet followed by another."""
        assert self._file is not None
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, self._good_bytes)
            os.lseek(self._file, self._good_bytes, os.SEEK_SET)
            raise
        self._good_bytes += len(data)

    def _count_failure(self, lost: int, error: OSError) -> None:
        self.error_count += 1
        self.lost_count += lost
        if not self._failing:
            self._failing = True
            _log.warning("the timeline cannot be written, training goes on: %s", error)

    def _count_success(self) -> None:
        if self._failing:
            self._failing = False
            _log.warning("the timeline is written again; %d events lost so far", self.lost_count)


class _Encoder:
    """Event tuples into packets; keeps the constant parts and the names."""

    def __init__(self, process: packets.ProcessId) -> None:
        self._process = process
        self._head = packets.head_of_event(process)
        self._names: dict[str, int] = {}
        self._tags: dict[str, int] = {}
        self._begins: dict[tuple[int, str, str], bytes] = {}
        self._ends: dict[int, bytes] = {}
        self._counters: dict[int, bytes] = {}

    def chunk(self, events: list[tuple]) -> bytes:
        """A complete chunk."""
        out: list[bytes] = []
        for event in events:
            if len(event) == 3:
                uuid, time_ns, value = event
                prefix = self._counters.get(uuid)
                if prefix is None:
                    prefix = self._counters[uuid] = packets.counter_fields(uuid)
                self._put(out, time_ns, prefix + packets.counter_value(value))
            else:
                self._slice(out, event)
        names = [(iid, name) for name, iid in self._names.items()]
        tags = [(iid, tag) for tag, iid in self._tags.items()]
        return packets.chunk_head(self._process, names, tags) + b"".join(out)

    def _slice(self, out: list[bytes], event: tuple) -> None:
        uuid, name, tag, start_ns, end_ns, flows, ends, parts, note, cpu, is_thread = event
        begin, end = self._begin(uuid, name, tag), self._end(uuid)
        if flows or ends:
            begin += packets.flow_fields(flows, ends)
        if note is not None:
            begin += packets.note_field(*note)
        if cpu is not None:
            begin += packets.note_field("cpu_us", (cpu[1] - cpu[0]) // 1000)
            if is_thread:
                begin += packets.thread_time_field(cpu[0])
                end += packets.thread_time_field(cpu[1])
        self._put(out, start_ns, begin)
        for part, part_tag, part_start_ns, part_end_ns in parts:
            self._put(out, part_start_ns, self._begin(uuid, part, part_tag))
            self._put(out, part_end_ns, self._end(uuid))
        self._put(out, end_ns, end)

    def _put(self, out: list[bytes], time_ns: int, event: bytes) -> None:
        # Seven bytes or more, whatever the value: a varint may be padded, and this one is fast.
        stamp = _PAIRS[time_ns & 0x3FFF] + _PAIRS[time_ns >> 14 & 0x3FFF]
        rest = time_ns >> 28
        stamp += _PAIRS[rest & 0x3FFF] + varint(rest >> 14)
        body = self._head + _TIMESTAMP_KEY + stamp + _TRACK_EVENT_KEY + varint(len(event)) + event
        out.append(packets.FRAME + varint(len(body)) + body)

    def _begin(self, uuid: int, name: str, tag: str) -> bytes:
        key = (uuid, name, tag)
        found = self._begins.get(key)
        if found is None:
            name_iid = self._names.setdefault(name, len(self._names) + 1)
            tag_iid = self._tags.setdefault(tag, len(self._tags) + 1) if tag else 0
            found = self._begins[key] = packets.begin_fields(uuid, name_iid, tag_iid)
        return found

    def _end(self, uuid: int) -> bytes:
        found = self._ends.get(uuid)
        if found is None:
            found = self._ends[uuid] = packets.end_fields(uuid)
        return found


def _clocks_ns() -> dict[int, int]:
    return {
        packets.BOOTTIME: time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        packets.MONOTONIC: time.monotonic_ns(),
        packets.REALTIME: time.time_ns(),
    }
