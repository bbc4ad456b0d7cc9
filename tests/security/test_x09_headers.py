"""X09: no byte of shared memory is believed. 100,000 damaged headers and words in all, seeded."""

import contextlib
import os
import random

import numpy as np
import pytest

from unilab_ipc.errors import IpcError
from unilab_ipc.heartbeat import HeartbeatBoard, board_dims
from unilab_ipc.inference_slot import InferenceSlot
from unilab_ipc.layout import HEADER_BYTES
from unilab_ipc.memory import create_segment, local_segment, open_segment
from unilab_ipc.metric_queue import RingReader, RingWriter, ring_dims
from unilab_ipc.names import segment_name
from unilab_ipc.policy_snapshot import SnapshotReader, SnapshotWriter
from unilab_ipc.replay_ingress import ReplayIngress
from unilab_ipc.segments import (
    HEARTBEAT,
    INFERENCE_SLOT,
    METRIC_QUEUE,
    POLICY_SNAPSHOT,
    REPLAY_INGRESS,
)

HEADERS = 50_000
WORDS = 50_000
EDGES = [-(2**63), -1, 0, 1, 2, 3, 7, 8, 64, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1]


@pytest.mark.parametrize("readonly", [False, True])
def test_x09_a_damaged_header_is_refused_by_one_of_our_errors(run_id, readonly):
    rng = random.Random(100 + readonly)
    name, dims = segment_name(run_id, "heartbeat", 0), board_dims(1)
    segment = create_segment(HEARTBEAT, name, dims)
    fd = os.open("/dev/shm" + name, os.O_RDWR)
    good = os.pread(fd, HEADER_BYTES, 0)
    meaningful = 32  # magic, version, size, fingerprint; the rest of the line is unused
    accepted = 0
    for _ in range(HEADERS // 2):
        header = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            header[rng.randrange(HEADER_BYTES)] = rng.randrange(256)
        if rng.random() < 0.1:
            at = 8 * rng.randrange(4)
            header[at : at + 8] = rng.choice(EDGES).to_bytes(8, "little", signed=True)
        os.pwrite(fd, header, 0)
        same = header[:meaningful] == good[:meaningful]
        try:
            open_segment(HEARTBEAT, name, dims, readonly=readonly).close()
        except IpcError:
            assert not same
        else:
            assert same
            accepted += 1
    assert 0 < accepted < HEADERS // 4
    os.pwrite(fd, good, 0)
    open_segment(HEARTBEAT, name, dims, readonly=readonly).close()
    os.close(fd)
    segment.unlink()
    segment.close()


def test_x09_a_segment_of_any_size_is_refused_and_never_read_past_its_end(run_id):
    rng = random.Random(6)
    name, dims = segment_name(run_id, "heartbeat", 0), board_dims(1)
    segment = create_segment(HEARTBEAT, name, dims)
    fd = os.open("/dev/shm" + name, os.O_RDWR)
    raw = os.pread(fd, segment.size_bytes, 0)
    sizes = [
        0,
        1,
        31,
        32,
        63,
        64,
        65,
        4095,
        4096,
        4097,
        segment.size_bytes - 1,
        segment.size_bytes + 1,
    ]
    for size in [*sizes, *(rng.randrange(3 * segment.size_bytes) for _ in range(200))]:
        if size == segment.size_bytes:
            continue
        os.ftruncate(fd, 0)
        os.pwrite(fd, raw[:size], 0)
        os.ftruncate(fd, size)
        with pytest.raises(IpcError):
            open_segment(HEARTBEAT, name, dims)
    os.close(fd)
    segment.unlink()
    segment.close()


class Words:
    """Damages the words of one segment at random and puts them back."""

    def __init__(self, segment, seed):
        self._rng = random.Random(seed)
        self._words = [
            array
            for array in segment.view.values()
            if array.dtype == np.dtype("<i8") and array.size
        ]
        self._good = [array.copy() for array in self._words]

    def damage(self):
        for array, good in zip(self._words, self._good, strict=True):
            array[...] = good
        for _ in range(self._rng.randrange(1, 4)):
            array = self._rng.choice(self._words)
            value = (
                self._rng.choice(EDGES) if self._rng.random() < 0.7 else self._rng.getrandbits(63)
            )
            array.reshape(-1)[self._rng.randrange(array.size)] = value


def read_ingress(segment):
    ring = ReplayIngress(segment)
    consumer = ring.consumer()
    for _ in range(4):
        slot = consumer.try_acquire()
        if slot is None:
            break
        assert slot.obs.shape == (2, 1)
        consumer.release()


def write_ingress(segment):
    producer = ReplayIngress(segment).producer()
    for _ in range(4):
        if producer.try_claim() is None:
            break
        producer.commit()


def read_slot(segment):
    port = InferenceSlot(segment).learner_port(lambda: None)
    seq = port.try_request()
    if seq is not None:
        port.respond(seq, policy_version=0)


def read_snapshot(segment):
    found = SnapshotReader(segment).try_fetch()
    assert found is None or found.values.shape == (4,)


def read_board(segment):
    board = HeartbeatBoard(segment)
    for row in board.rows():
        assert isinstance(row.phase, str)
    board.stop_level()


def read_queue(segment):
    for record in RingReader(segment).read(max_records=20):
        assert isinstance(record, dict)


def ingress():
    segment = local_segment(REPLAY_INGRESS, {"D": 2, "E": 2, "O": 1, "C": 1, "A": 1})
    producer = ReplayIngress(segment).producer()
    producer.try_claim()
    producer.commit()
    return segment


def slot():
    segment = local_segment(INFERENCE_SLOT, {"E": 2, "O": 1, "C": 1, "A": 1, "R": 0, "L": 0})
    InferenceSlot(segment).collector_port(lambda: None).publish(0)
    return segment


def snapshot():
    segment = local_segment(POLICY_SNAPSHOT, {"P": 4})
    SnapshotWriter(segment).publish(np.ones(4, np.float32), version=1, normaliser_version=1)
    return segment


def board():
    segment = local_segment(HEARTBEAT, board_dims(1))
    HeartbeatBoard(segment).role("launcher", 0).register()
    return segment


def queue():
    segment = local_segment(METRIC_QUEUE, ring_dims(1024))
    writer = RingWriter(segment)
    for number in range(30):
        writer.write({"n": number})
    return segment


READERS = [
    (ingress, read_ingress),
    (ingress, write_ingress),
    (slot, read_slot),
    (snapshot, read_snapshot),
    (board, read_board),
    (queue, read_queue),
]


@pytest.mark.parametrize(("make", "read"), READERS, ids=[read.__name__ for _, read in READERS])
def test_x09_impossible_words_raise_our_errors_or_are_survived(make, read):
    segment = make()
    read_once = make()
    read(read_once)  # undamaged it works
    words = Words(segment, seed=len(read.__name__))
    for _ in range(WORDS // len(READERS)):
        words.damage()
        with contextlib.suppress(IpcError):
            read(segment)
