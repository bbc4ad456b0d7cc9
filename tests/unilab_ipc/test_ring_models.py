"""Rings against simple models, driven by hypothesis."""

from collections import deque

import numpy as np
import pytest

from unilab_ipc.errors import Closed, IpcError
from unilab_ipc.inference_slot import InferenceSlot, Response
from unilab_ipc.memory import Segment, local_segment
from unilab_ipc.metric_queue import RingReader, RingWriter, ring_dims
from unilab_ipc.policy_snapshot import SnapshotReader, SnapshotWriter, snapshot_dims
from unilab_ipc.replay_ingress import ReplayIngress, TransitionSlot
from unilab_ipc.rollout_ring import RolloutRing, RolloutSlot
from unilab_ipc.segments import (
    INFERENCE_SLOT,
    METRIC_QUEUE,
    POLICY_SNAPSHOT,
    REPLAY_INGRESS,
    ROLLOUT_RING,
)

pytest.importorskip("hypothesis")

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

FIRST_SEQS = st.sampled_from([0, 1, 2**31 - 2, 2**32 - 1, 2**53 - 1])


class IngressMachine(RuleBasedStateMachine):
    """The slot ring against a deque, as replay ingress."""

    layout = REPLAY_INGRESS

    def ring_over(self, segment: Segment, debug: bool) -> ReplayIngress | RolloutRing:
        return ReplayIngress(segment, debug=debug)

    @initialize(depth=st.integers(1, 4), first=FIRST_SEQS, debug=st.booleans())
    def start(self, depth: int, first: int, debug: bool) -> None:
        segment = local_segment(
            self.layout, {"D": depth, "T": 2, "T1": 3, "E": 2, "O": 1, "C": 1, "A": 1}
        )
        segment.view["published_count"][()] = first
        segment.view["released_count"][()] = first
        self.ring = self.ring_over(segment, debug)
        self.producer, self.consumer = self.ring.producer(), self.ring.consumer()
        self.depth = depth
        self.first = first
        self.model: deque[tuple[int, float]] = deque()
        self.claimed: TransitionSlot | RolloutSlot | None = None
        self.acquired: TransitionSlot | RolloutSlot | None = None
        self.next_seq = first
        self.closed = False

    @precondition(lambda self: self.claimed is None and not self.closed)
    @rule()
    def claim(self) -> None:
        self.claimed = self.producer.try_claim()
        assert (self.claimed is None) == (len(self.model) == self.depth)
        if self.claimed is not None:
            assert self.claimed.seq == self.next_seq

    @precondition(lambda self: self.claimed is None and self.closed)
    @rule()
    def claim_on_a_closed_ring(self) -> None:
        with pytest.raises(Closed):
            self.producer.try_claim()

    @precondition(lambda self: self.claimed is not None)
    @rule(value=st.floats(-1e6, 1e6, width=32))
    def commit(self, value: float) -> None:
        assert self.claimed is not None
        for array in self.claimed.payload():
            array[...] = abs(value) % 200
        self.claimed.obs[...] = value
        self.producer.commit()
        self.model.append((self.next_seq, value))
        self.next_seq += 1
        self.claimed = None

    @precondition(lambda self: self.claimed is not None)
    @rule()
    def abort(self) -> None:
        assert self.claimed is not None
        self.claimed.obs[...] = -1.0
        self.producer.abort()
        self.claimed = None

    @precondition(lambda self: self.acquired is None)
    @rule()
    def acquire(self) -> None:
        self.acquired = self.consumer.try_acquire()
        assert (self.acquired is None) == (not self.model)
        if self.acquired is not None:
            assert (self.acquired.seq, float(self.acquired.obs.flat[-1])) == self.model[0]

    @precondition(lambda self: self.acquired is not None)
    @rule()
    def release(self) -> None:
        assert self.acquired is not None
        assert float(self.acquired.obs.flat[0]) == self.model[0][1]
        self.consumer.release()
        self.model.popleft()
        self.acquired = None

    @rule()
    def reopen_producer(self) -> None:
        self.producer = self.ring.producer()
        self.claimed = None

    @rule()
    def reopen_consumer(self) -> None:
        self.consumer = self.ring.consumer()
        self.acquired = None

    @rule()
    def close(self) -> None:
        self.consumer.close()
        self.closed = True

    @invariant()
    def gauges_agree_with_the_model(self) -> None:
        gauges = self.ring.gauges()
        assert gauges["published_sequence"] == self.next_seq
        assert gauges["occupancy"] == len(self.model) == self.consumer.occupancy
        assert 0 <= gauges["occupancy"] <= gauges["high_water_occupancy"] <= self.depth
        assert self.producer.remaining_capacity == self.depth - len(self.model)


class RolloutMachine(IngressMachine):
    """The same rules for the rollout ring."""

    layout = ROLLOUT_RING

    def ring_over(self, segment: Segment, debug: bool) -> ReplayIngress | RolloutRing:
        return RolloutRing(segment, debug=debug)


class SnapshotMachine(RuleBasedStateMachine):
    """The policy snapshot against the newest publication."""

    @initialize(first=st.sampled_from([-1, 0, 2**31 - 2, 2**53]), num_values=st.integers(1, 5))
    def start(self, first: int, num_values: int) -> None:
        self.segment = local_segment(POLICY_SNAPSHOT, snapshot_dims(num_values))
        self.num_values = num_values
        self.seq = first
        self.versions: list[int] = []
        self.readers: list[tuple[SnapshotReader, list[int]]] = []
        self.writer = SnapshotWriter(self.segment)
        if first >= 0:  # numbers go on from far up, after a publication that readers can find
            self.seq = first - 1
            self.segment.view["newest_seq"][()] = first - 1
            self.writer = SnapshotWriter(self.segment)
            self.publish(7, 1)

    @rule(version=st.integers(0, 1000), count=st.integers(1, 3))
    def publish(self, version: int, count: int) -> None:
        for step in range(count):
            values = np.full(self.num_values, version + step, np.float32)
            self.writer.publish(values, version + step, -version)
            self.versions.append(version + step)

    @rule(version=st.integers(0, 1000), steps=st.integers(1, 3))
    def die_inside_a_publication(self, version: int, steps: int) -> None:
        values = np.full(self.num_values, version, np.float32)
        half = self.writer._publish_steps(values, version, 0)
        for _ in range(steps):
            next(half)
        self.writer = SnapshotWriter(self.segment)

    @precondition(lambda self: len(self.readers) < 3)
    @rule()
    def attach(self) -> None:
        self.readers.append((SnapshotReader(self.segment), []))

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, 2))
    def fetch(self, which: int) -> None:
        reader, seen = self.readers[which % len(self.readers)]
        snapshot = reader.try_fetch()
        newest = len(self.versions)
        if snapshot is None:
            assert not newest or (seen and seen[-1] == newest)
            return
        assert snapshot.version == self.versions[-1]
        assert snapshot.values.tolist() == [float(snapshot.version)] * self.num_values
        assert snapshot.seq == self.seq + newest
        assert not seen or seen[-1] < newest
        seen.append(newest)

    @invariant()
    def nothing_is_torn_without_a_race(self) -> None:
        assert all(reader.torn_count == reader.kept_count == 0 for reader, _ in self.readers)


class QueueMachine(RuleBasedStateMachine):
    """The broadcast ring against the list of everything written."""

    @initialize(capacity=st.sampled_from([1024, 1032, 2048]))
    def start(self, capacity: int) -> None:
        self.segment = local_segment(METRIC_QUEUE, ring_dims(capacity))
        self.writer = RingWriter(self.segment)
        self.written: list[dict[str, object]] = []
        self.dropped = 0
        self.readers: list[tuple[RingReader, list[int]]] = []

    @rule(width=st.integers(0, 220))
    def write(self, width: int) -> None:
        record: dict[str, object] = {"n": len(self.written), "x": "z" * width}
        assert self.writer.write(record)
        self.written.append(record)

    @rule(bad=st.sampled_from(["z" * 2000, object(), 2**70]))
    def write_what_cannot_be_written(self, bad: object) -> None:
        assert not self.writer.write({"n": bad})
        self.dropped += 1

    @precondition(lambda self: len(self.readers) < 3)
    @rule(from_oldest=st.booleans())
    def attach(self, from_oldest: bool) -> None:
        self.readers.append((RingReader(self.segment, from_oldest), []))

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, 2), count=st.integers(1, 30))
    def read(self, which: int, count: int) -> None:
        reader, seen = self.readers[which % len(self.readers)]
        records = reader.read(max_records=count)
        assert len(records) <= count
        for record in records:
            number = record["n"]
            assert record == self.written[number]
            seen.append(number)
        assert seen == sorted(set(seen))
        if len(records) < count and seen:
            assert seen[-1] == len(self.written) - 1
        if seen:
            assert reader.lapped_count == seen[-1] - seen[0] + 1 - len(seen)

    @invariant()
    def nothing_is_invalid_and_the_newest_is_there(self) -> None:
        assert self.writer.dropped_count == self.dropped
        late = RingReader(self.segment)
        records = late.read()
        assert late.invalid_count == late.lapped_count == 0
        assert records == self.written[len(self.written) - len(records) :]
        assert bool(records) == bool(self.written)
        assert all(reader.invalid_count == 0 for reader, _ in self.readers)


class SlotMachine(RuleBasedStateMachine):
    """The inference slot against one pending number."""

    @initialize(first=FIRST_SEQS)
    def start(self, first: int) -> None:
        segment = local_segment(INFERENCE_SLOT, {"E": 1, "O": 1, "C": 1, "A": 1, "R": 0, "L": 0})
        self.slot = InferenceSlot(segment)
        self.rings: list[str] = []
        self.reopen()
        self.next_seq = first
        self.pending: int | None = None
        self.answered: tuple[int, int] | None = None
        self.taken = True

    @rule()
    def reopen(self) -> None:
        self.collector = self.slot.collector_port(lambda: self.rings.append("learner"))
        self.learner = self.slot.learner_port(lambda: self.rings.append("collector"))

    @rule(step=st.integers(1, 3))
    def publish(self, step: int) -> None:
        if self.pending is not None:
            with pytest.raises(IpcError):
                self.collector.publish(self.next_seq)
            return
        self.next_seq += step
        self.collector.obs[...] = self.next_seq % 1000
        self.collector.publish(self.next_seq)
        self.pending = self.next_seq
        self.taken = False
        assert self.rings.pop() == "learner"

    @rule(version=st.integers(0, 2**40))
    def respond(self, version: int) -> None:
        if self.pending is None:
            with pytest.raises(IpcError):
                self.learner.respond(self.next_seq, version)
            return
        assert float(self.learner.obs[0, 0]) == self.pending % 1000
        self.learner.actions[...] = -self.learner.obs
        self.learner.respond(self.pending, version)
        self.answered = (self.pending, version)
        self.pending = None
        assert self.rings.pop() == "collector"

    @rule()
    def take(self) -> None:
        if self.pending is not None:
            assert self.collector.try_response(self.pending) is None
        elif self.answered is not None:
            seq, version = self.answered
            assert self.collector.try_response(seq) == Response(version, closed=False)
            assert float(self.collector.actions[0, 0]) == -(seq % 1000)
            self.taken = True

    @invariant()
    def requests_and_gauges_agree_with_the_model(self) -> None:
        assert self.learner.try_request() == self.pending
        depth = int(self.pending is not None)
        backlog = int(self.pending is None and self.answered is not None and not self.taken)
        assert self.slot.flight() == {
            "queue_depth": depth,
            "action_backlog": backlog,
            "in_flight": depth + backlog,
            "publication_lag": depth,
        }


MACHINES = (IngressMachine, RolloutMachine, SnapshotMachine, QueueMachine, SlotMachine)
for machine in MACHINES:
    machine.TestCase.settings = settings(
        max_examples=40, stateful_step_count=60, deadline=None, derandomize=True, database=None
    )

TestIngress = IngressMachine.TestCase
TestRollout = RolloutMachine.TestCase
TestSnapshot = SnapshotMachine.TestCase
TestQueue = QueueMachine.TestCase
TestSlot = SlotMachine.TestCase
