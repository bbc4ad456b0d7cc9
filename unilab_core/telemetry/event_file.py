"""TensorBoard event files: one event with all scalars per step, written and read.

The wire messages are tensorboardX's; the file handling is ours, because that library's writer
loses its thread on a full disk, then blocks its caller for ever, and hands events over through a
multiprocessing queue. An `EventFile` writes whole records or nothing: after a failed write the file
is cut back to its last good record, so a disk that fills up and empties again leaves no damage.

Record: length (8 bytes), masked CRC of it (4), payload, masked CRC of it (4); little endian.
"""

import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from unilab_core.telemetry.crc32c import masked_crc32c

_FILE_VERSION = "brain.Event:2"
_MAX_RECORD_BYTES = 64 * 1024 * 1024
_SAME_SECOND_TRIES = 1000


@dataclass(kw_only=True, slots=True, frozen=True)
class ScalarEvent:
    """All scalars of one step."""

    step: int
    wall_time_s: float
    scalars: Mapping[str, float]


class EventFile:
    """One new event file in a run directory; every write is a whole number of records."""

    def __init__(self, run_dir: Path, purge_step: int | None = None) -> None:
        """Create the file; `purge_step`: readers forget what older files say from that step on."""
        self._fd, self.path = _create(run_dir)
        self._good_bytes = 0
        wall_time_s = time.time()
        heads = [_event(wall_time=wall_time_s, file_version=_FILE_VERSION)]
        if purge_step is not None:
            heads.append(_session_start(wall_time_s, purge_step))
        try:
            self._append(b"".join(map(_framed, heads)))
        except OSError:
            os.close(self._fd)
            self.path.unlink(missing_ok=True)
            raise

    def write(self, event: ScalarEvent) -> None:
        """Append the event, or nothing at all and OSError. Readable at once by other processes."""
        self._append(_framed(_scalar_event(event)))

    def close(self) -> None:
        """Close the descriptor; everything is written already."""
        os.close(self._fd)

    def _append(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            # Part of a record may be in the file: cut it off, or no reader gets past it.
            os.ftruncate(self._fd, self._good_bytes)
            os.lseek(self._fd, self._good_bytes, os.SEEK_SET)
            raise
        self._good_bytes += len(data)


def read_events(path: Path) -> Iterator[ScalarEvent | int]:
    """The scalar events of one file, and the purge step (an int) where a session starts.

    Ends quietly at an unfinished or damaged record: that is how the file of a killed run ends.
    """
    event_pb2 = load_messages()
    for payload in _payloads(path):
        event = event_pb2.Event.FromString(payload)
        if event.WhichOneof("what") == "session_log":
            yield event.step
        elif event.WhichOneof("what") == "summary":
            scalars = {value.tag: value.simple_value for value in event.summary.value}
            yield ScalarEvent(step=event.step, wall_time_s=event.wall_time, scalars=scalars)


def read_scalars(run_dir: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) per tag over all event files of a run, purges applied, in written order."""
    points: dict[str, list[tuple[int, float]]] = {}
    for path in event_files(run_dir):
        for event in read_events(path):
            if isinstance(event, int):
                points = {
                    tag: [point for point in series if point[0] < event]
                    for tag, series in points.items()
                }
                continue
            for tag, value in event.scalars.items():
                points.setdefault(tag, []).append((event.step, value))
    return points


def event_files(run_dir: Path) -> list[Path]:
    """The event files of a run, oldest first."""
    return sorted(run_dir.glob("events.out.tfevents.*"))


@cache
def load_messages() -> ModuleType:
    """The wire messages; imported late because that package loads torch where it is installed."""
    from tensorboardX.proto import event_pb2

    return event_pb2


def _create(run_dir: Path) -> tuple[int, Path]:
    stem = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for number in range(_SAME_SECOND_TRIES):
        path = run_dir / f"{stem}.{number:03d}"
        try:
            return os.open(path, flags, 0o644), path
        except FileExistsError:
            continue
    raise FileExistsError(f"no free event file name in {run_dir}")


def _scalar_event(event: ScalarEvent) -> bytes:
    event_pb2 = load_messages()
    message = event_pb2.Event(wall_time=event.wall_time_s, step=event.step)
    values = message.summary.value
    for tag, value in event.scalars.items():
        values.add(tag=tag, simple_value=value)
    return message.SerializeToString()


def _session_start(wall_time_s: float, step: int) -> bytes:
    event_pb2 = load_messages()
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    return _event(wall_time=wall_time_s, step=step, session_log=start)


def _event(**fields: object) -> bytes:
    return load_messages().Event(**fields).SerializeToString()


def _framed(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return b"".join(
        (
            length,
            struct.pack("<I", masked_crc32c(length)),
            payload,
            struct.pack("<I", masked_crc32c(payload)),
        )
    )


def _payloads(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while len(head := file.read(12)) == 12:
            length, length_crc = struct.unpack("<QI", head)
            if length_crc != masked_crc32c(head[:8]) or length > _MAX_RECORD_BYTES:
                return
            body = file.read(length + 4)
            if len(body) != length + 4:
                return
            payload = body[:length]
            if struct.unpack("<I", body[length:])[0] != masked_crc32c(payload):
                return
            yield payload
