"""``unilab-bench sequence``: every transition arrives once or is counted, every record too.

Two real processes over the production segments, no training:

    sender (child)  --transitions, numbered 0, 1, 2, ...-->  replay ingress  -->  this process
                    --records, numbered 0, 1, 2, ...------>  metric ring     -->  two readers

**Ingress.** Every array of a slot follows from the numbers of its rows, so that a torn slot shows.
This process takes whole slots, stands still now and then (the sender then waits for room), and
closes the ring once it has taken ``transitions`` rows. The sender means to send a few slots more:
what it gives up must be exactly what is missing here.

**Metric ring.** A small ring and a writer that never waits: both readers are overrun, one of them
on purpose. What a reader has not seen must be exactly what it reports as lapped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unilab_core.config.errors import ConfigError
from unilab_core.tools.bench.report import BenchReport
from unilab_ipc.doorbell import Doorbell
from unilab_ipc.errors import Closed, PeerDead
from unilab_ipc.memory import Segment, create_segment, open_segment
from unilab_ipc.metric_queue import RingReader, RingWriter, ring_dims
from unilab_ipc.names import new_run_id, segment_name
from unilab_ipc.peers import Peer, process_start_ticks
from unilab_ipc.replay_ingress import DEFAULT_DEPTH, ReplayIngress, TransitionSlot
from unilab_ipc.segments import METRIC_QUEUE, REPLAY_INGRESS
from unilab_ipc.slot_ring import SlotConsumer
from unilab_ipc.waiting import Waiter

MAX_NUMBERED = 1 << 31
SURPLUS_SLOTS = 8
"""Slots that the sender still has when the ring closes."""
STALLS = 20
STALL_S = 0.05
RING_BYTES = 1 << 16
LAZY_TURNS = 64
"""The lazy reader looks once in so many turns of the eager one."""
TIMEOUT_S = 60.0
BELLS = ("sender", "receiver")


def run(*, transitions: int, envs: int, records: int) -> BenchReport:
    """Send and account for everything.

    Args:
        transitions: rows through the ingress, rounded up to whole slots.
        envs: rows per slot.
        records: metric records.
    """
    _check(transitions=transitions, envs=envs, records=records)
    rows = [_ingress(-(-transitions // envs), envs), *_metrics(records)]
    settings: dict[str, object] = {
        "transitions": transitions,
        "envs": envs,
        "records": records,
        "stalls": STALLS,
        "ring_bytes": RING_BYTES,
    }
    return BenchReport(bench="sequence", settings=settings, rows=rows, ok=all(map(holds, rows)))


def holds(row: dict) -> bool:
    """Whether everything sent was seen once or counted, and nothing was damaged or doubled."""
    whole = row["seen_once"] + row["counted_lost"] == row["sent"]
    return whole and row["seen_once"] > 0 and row["doubled"] == 0 and row["damaged"] == 0


class Tally:
    """How often each number was seen."""

    def __init__(self, count: int) -> None:
        self._seen = np.zeros(count, np.uint8)
        self._arrived = 0
        self._damaged = 0

    def take(self, numbers: NDArray[np.uint32]) -> None:
        """Note the numbers of one hand-over."""
        first, count = int(numbers[0]), len(numbers)
        in_a_row = int(numbers[-1]) - first == count - 1 and bool((np.diff(numbers) == 1).all())
        if in_a_row and first + count <= len(self._seen):
            self._seen[first : first + count] += 1
            self._arrived += count
            return
        known = numbers[numbers < len(self._seen)]
        self._arrived += len(known)
        self._damaged += count - len(known)
        np.add.at(self._seen, known, 1)

    def note_damage(self, count: int) -> None:
        """Note rows whose arrays disagree with their number."""
        self._damaged += count

    def figures(self, counted_lost: int) -> dict:
        """The row's figures; `doubled` counts every arrival beyond the first of its number."""
        distinct = int(np.count_nonzero(self._seen))
        return {
            "sent": len(self._seen),
            "seen_once": int(np.count_nonzero(self._seen == 1)),
            "doubled": self._arrived - distinct,
            "counted_lost": counted_lost,
            "damaged": self._damaged,
        }


# ---- ingress


def _ingress(slots: int, envs: int) -> dict:
    dims = _ingress_dims(envs)
    sent_slots = slots + SURPLUS_SLOTS
    tally = Tally(sent_slots * envs)
    name = segment_name(new_run_id(), "replay_ingress", 0)
    with _created(create_segment(REPLAY_INGRESS, name, dims)) as segment, _bells() as folder:
        with _sender("transitions", name, str(envs), str(sent_slots), str(folder)) as child:
            own, other = (Doorbell.open(folder / bell) for bell in reversed(BELLS))
            consumer = ReplayIngress(segment).consumer(other.ring)
            waiter = Waiter(own, [_peer("collector", child.pid)], lambda: False)
            waiter.wait(lambda: consumer.occupancy or None, timeout_s=TIMEOUT_S, awaits="collector")
            start_ns = time.monotonic_ns()
            _receive(consumer, waiter, slots, tally)
            duration_s = (time.monotonic_ns() - start_ns) / 1e9
            consumer.close()
            _wait_for(child)
            while (slot := consumer.try_acquire()) is not None:  # committed before the close
                _account(slot, tally)
                consumer.release()
        gauges = ReplayIngress(segment).gauges()
    figures = tally.figures(int(gauges["closed_returns"]) * envs)
    rate = slots * envs / duration_s
    return {
        "channel": "ingress",
        **figures,
        "per_s": rate,
        "waits": int(gauges["backpressure_waits"]),
    }


def _receive(
    consumer: SlotConsumer[TransitionSlot], waiter: Waiter, slots: int, tally: Tally
) -> None:
    stall_every = max(slots // STALLS, 1)
    for index in range(slots):
        slot = waiter.wait(consumer.try_acquire, timeout_s=TIMEOUT_S, awaits="collector")
        _account(slot, tally)
        consumer.release()
        if index % stall_every == stall_every - 1:
            time.sleep(STALL_S)  # a learner that is busy elsewhere: the ring fills up


def _account(slot: TransitionSlot, tally: Tally) -> None:
    numbers = slot.obs.view(np.uint32)[:, 0]
    damaged = np.zeros(len(numbers), bool)
    for array, expected in zip(slot.payload(), _payload(numbers), strict=True):
        damaged |= array.view(expected.dtype).reshape(-1) != expected
    if damaged.any():
        tally.note_damage(int(damaged.sum()))
    tally.take(numbers)


def _payload(numbers: NDArray[np.uint32]) -> tuple[NDArray[np.uint32] | NDArray[np.uint8], ...]:
    """What the arrays of a slot hold, in their order: bit patterns, never used as floats."""
    odd = (numbers & 1).astype(np.uint8)
    return (
        numbers,
        numbers ^ np.uint32(0x5A5A5A5A),
        numbers ^ np.uint32(0x3C3C3C3C),
        ~numbers,
        odd,
        1 - odd,
        odd ^ (numbers >> 1 & 1).astype(np.uint8),
        numbers + np.uint32(1),
        numbers ^ np.uint32(0x0F0F0F0F),
    )


def _send_transitions(name: str, envs: str, slots: str, folder: str) -> None:
    num_envs = int(envs)
    segment = open_segment(REPLAY_INGRESS, name, _ingress_dims(num_envs))
    own, other = (Doorbell.open(Path(folder, bell)) for bell in BELLS)
    producer = ReplayIngress(segment).producer(other.ring)
    waiter = Waiter(own, [_peer("learner", os.getppid())], lambda: False)
    offsets = np.arange(num_envs, dtype=np.uint32)
    for index in range(int(slots)):
        try:
            slot = producer.try_claim()
            if slot is None:
                start_ns = time.monotonic_ns()
                try:
                    slot = waiter.wait(producer.try_claim, timeout_s=TIMEOUT_S, awaits="learner")
                finally:
                    producer.note_wait(time.monotonic_ns() - start_ns)
        except Closed:
            producer.note_drop("closed")
            continue  # each slot that was meant to be sent is given up, and counted, by itself
        values = _payload(offsets + np.uint32(index * num_envs))
        for array, value in zip(slot.payload(), values, strict=True):
            array.view(value.dtype).reshape(-1)[...] = value
        producer.commit()
    segment.close()


# ---- metrics


def _metrics(records: int) -> list[dict]:
    name = segment_name(new_run_id(), "learner_metrics", 0)
    with _created(create_segment(METRIC_QUEUE, name, ring_dims(RING_BYTES))) as segment:
        readers = {
            kind: (RingReader(segment), Tally(records)) for kind in ("eager reader", "lazy reader")
        }
        start_ns = time.monotonic_ns()
        with _sender("records", name, str(records)) as child:
            turn = 0
            while child.poll() is None:
                for index, (reader, tally) in enumerate(readers.values()):
                    if turn % (LAZY_TURNS if index else 1) == 0:
                        _read(reader, tally)
                turn += 1
            _wait_for(child)
        for reader, tally in readers.values():
            while _read(reader, tally):
                pass
        rate = records / ((time.monotonic_ns() - start_ns) / 1e9)
    return [
        {
            "channel": kind,
            **tally.figures(reader.lapped_count),
            "per_s": rate,
            "waits": 0,  # the writer never waits
        }
        for kind, (reader, tally) in readers.items()
    ]


def _read(reader: RingReader, tally: Tally) -> int:
    before = reader.invalid_count
    found = reader.read()
    if found:
        tally.take(np.array([record["number"] for record in found], np.uint32))
        tally.note_damage(sum(record["check"] != -record["number"] for record in found))
    tally.note_damage(reader.invalid_count - before)
    return len(found)


def _send_records(name: str, records: str) -> None:
    segment = open_segment(METRIC_QUEUE, name, ring_dims(RING_BYTES))
    writer = RingWriter(segment)
    for number in range(int(records)):
        writer.write({"number": number, "check": -number})
    segment.close()


# ---- processes and segments


@contextmanager
def _sender(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-m", __name__, *words])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


@contextmanager
def _created(segment: Segment) -> Iterator[Segment]:
    try:
        yield segment
    finally:
        segment.unlink()
        segment.close()


@contextmanager
def _bells() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="unilab-bench-") as folder:
        for bell in BELLS:
            Doorbell.create(Path(folder, bell)).close()
        yield Path(folder)


def _wait_for(child: subprocess.Popen[bytes]) -> None:
    if child.wait(timeout=TIMEOUT_S) != 0:
        raise RuntimeError(f"the sending process failed with exit code {child.returncode}")


def _peer(role: str, pid: int) -> Peer:
    ticks = process_start_ticks(pid)
    if ticks is None:
        raise PeerDead(role, 0, pid)
    return Peer(role, 0, pid, ticks).open()


def _ingress_dims(envs: int) -> dict[str, int]:
    return {"D": DEFAULT_DEPTH, "E": envs, "O": 1, "C": 1, "A": 1}


def _check(**numbers: int) -> None:
    for name, value in numbers.items():
        if not 1 <= value <= MAX_NUMBERED:
            raise ConfigError(f"--{name}: got {value}, expected 1 to {MAX_NUMBERED}")


def _main(argv: Sequence[str]) -> None:
    send = {"transitions": _send_transitions, "records": _send_records}[argv[0]]
    send(*argv[1:])


if __name__ == "__main__":
    _main(sys.argv[1:])
