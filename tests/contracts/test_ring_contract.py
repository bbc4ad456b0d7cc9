"""Every protocol behaves the same on in-process memory and on POSIX memory.

On POSIX memory the two sides use two mappings: one created, one attached.
"""

import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from unilab_ipc.errors import Closed, IpcError, SegmentCorrupt
from unilab_ipc.inference_slot import InferenceSlot, Response
from unilab_ipc.layout import Dims, Layout
from unilab_ipc.memory import Segment, create_segment, local_segment, open_segment
from unilab_ipc.metric_queue import RingReader, RingWriter, ring_dims
from unilab_ipc.names import KIND_LETTERS, new_run_id, segment_name
from unilab_ipc.policy_snapshot import SnapshotReader, SnapshotWriter, snapshot_dims
from unilab_ipc.replay_ingress import ReplayIngress
from unilab_ipc.rollout_ring import RolloutRing, rollout_dims
from unilab_ipc.segments import (
    INFERENCE_SLOT,
    METRIC_QUEUE,
    POLICY_SNAPSHOT,
    REPLAY_INGRESS,
    ROLLOUT_RING,
    SEGMENTS,
)

Pair = Callable[[Layout, Dims], tuple[Segment, Segment]]

SLOT_DIMS = {"E": 4, "O": 3, "C": 5, "A": 2, "R": 4, "L": 2}
INGRESS_DIMS = {"D": 2, "E": 4, "O": 3, "C": 5, "A": 2}


@pytest.fixture(params=["local", "posix"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Makes (our segment, the peer's segment) over the same memory."""
    run_id = new_run_id()
    made: list[Segment] = []

    def make(layout: Layout, dims: Dims) -> tuple[Segment, Segment]:
        if request.param == "local":
            segment = local_segment(layout, dims)
            return segment, segment
        kind = "learner_metrics" if layout.kind == "metric_queue" else layout.kind
        name = segment_name(run_id, kind, len(made))
        segment = create_segment(layout, name, dims)
        made.append(segment)
        return segment, open_segment(layout, name, dims)

    yield make
    for segment in made:
        segment.unlink()
        segment.close()
    assert not [name for name in os.listdir("/dev/shm") if run_id in name]


def test_every_layout_has_a_name_kind() -> None:
    kinds = set(KIND_LETTERS) - {"collector_metrics", "learner_metrics"} | {"metric_queue"}
    assert {layout.kind for layout in SEGMENTS} == kinds


# inference slot


def test_slot_round_trip_carries_every_array(pair: Pair) -> None:
    ours, theirs = pair(INFERENCE_SLOT, SLOT_DIMS)
    rings: list[str] = []
    collector = InferenceSlot(ours, SLOT_DIMS).collector_port(lambda: rings.append("learner"))
    learner = InferenceSlot(theirs, SLOT_DIMS).learner_port(lambda: rings.append("collector"))
    assert learner.try_request() is None
    collector.obs[...] = np.arange(12).reshape(4, 3)
    collector.critic_obs[...] = 2.0
    collector.done[...] = [0, 1, 0, 1]
    collector.reward[...] = 3.0
    collector.final_critic_obs[1] = 4.0
    collector.log[...] = [0.5, 0.25]
    collector.publish(0)
    assert rings == ["learner"]
    assert collector.try_response(0) is None
    assert learner.try_request() == 0
    assert learner.obs.tolist() == np.arange(12.0).reshape(4, 3).tolist()
    assert float(learner.critic_obs.sum()) == 40.0
    assert learner.done.tolist() == [0, 1, 0, 1]
    assert learner.reward.tolist() == [3.0] * 4
    assert learner.final_critic_obs[1].tolist() == [4.0] * 5
    assert learner.log.tolist() == [0.5, 0.25]
    learner.actions[...] = np.arange(8).reshape(4, 2)
    learner.respond(0, policy_version=17)
    assert rings == ["learner", "collector"]
    assert collector.try_response(0) == Response(policy_version=17, closed=False)
    assert collector.actions.tolist() == np.arange(8.0).reshape(4, 2).tolist()
    assert learner.try_request() is None


def test_slot_gauges_follow_a_request(pair: Pair) -> None:
    ours, theirs = pair(INFERENCE_SLOT, SLOT_DIMS)
    collector = InferenceSlot(ours).collector_port(lambda: None)
    learner = InferenceSlot(theirs).learner_port(lambda: None)
    gauges = InferenceSlot(theirs)
    empty = {"queue_depth": 0, "action_backlog": 0, "in_flight": 0, "publication_lag": 0}
    assert gauges.flight() == empty
    collector.publish(1000)
    asked = {"queue_depth": 1, "action_backlog": 0, "in_flight": 1, "publication_lag": 1}
    assert gauges.flight() == asked
    learner.respond(1000, 0)
    answered = {"queue_depth": 0, "action_backlog": 1, "in_flight": 1, "publication_lag": 0}
    assert gauges.flight() == answered
    collector.try_response(1000)
    assert gauges.flight() == empty


def test_slot_closes_with_or_without_an_answer(pair: Pair) -> None:
    ours, theirs = pair(INFERENCE_SLOT, SLOT_DIMS)
    collector = InferenceSlot(ours).collector_port(lambda: None)
    learner = InferenceSlot(theirs).learner_port(lambda: None)
    collector.publish(0)
    learner.respond(0, 5, closed=True)
    assert collector.try_response(0) == Response(5, closed=True)
    collector.publish(1)
    learner.close()
    assert collector.try_response(1) == Response(5, closed=True)


def test_slot_ports_cannot_write_what_is_not_theirs(pair: Pair) -> None:
    ours, theirs = pair(INFERENCE_SLOT, SLOT_DIMS)
    collector = InferenceSlot(ours).collector_port(lambda: None)
    learner = InferenceSlot(theirs).learner_port(lambda: None)
    with pytest.raises(ValueError, match="read-only"):
        collector.actions[0] = 1.0
    for array in (learner.obs, learner.critic_obs, learner.done, learner.reward, learner.log):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_slot_refuses_misuse(pair: Pair) -> None:
    ours, theirs = pair(INFERENCE_SLOT, SLOT_DIMS)
    collector = InferenceSlot(ours).collector_port(lambda: None)
    learner = InferenceSlot(theirs).learner_port(lambda: None)
    with pytest.raises(IpcError, match="pending"):
        learner.respond(0, 0)
    collector.publish(0)
    with pytest.raises(IpcError, match="in flight"):
        collector.publish(1)
    with pytest.raises(IpcError, match="cannot answer 1"):
        learner.respond(1, 0)
    learner.respond(0, 0)
    with pytest.raises(IpcError, match="must grow"):
        collector.publish(0)


def test_slot_sequences_pass_2_to_the_31(pair: Pair) -> None:
    ours, theirs = pair(INFERENCE_SLOT, SLOT_DIMS)
    collector = InferenceSlot(ours).collector_port(lambda: None)
    learner = InferenceSlot(theirs).learner_port(lambda: None)
    for seq in (2**31 - 1, 2**31, 2**53 + 1):
        collector.publish(seq)
        assert learner.try_request() == seq
        learner.respond(seq, seq)
        assert collector.try_response(seq) == Response(seq, closed=False)


def test_slot_believes_no_impossible_sequence(pair: Pair) -> None:
    ours, theirs = pair(INFERENCE_SLOT, SLOT_DIMS)
    collector = InferenceSlot(ours).collector_port(lambda: None)
    learner = InferenceSlot(theirs).learner_port(lambda: None)
    ours.view["response_seq"][()] = 9
    with pytest.raises(SegmentCorrupt):
        collector.try_response(3)
    with pytest.raises(SegmentCorrupt):
        learner.try_request()


# replay ingress


def test_ingress_delivers_in_order_and_whole(pair: Pair) -> None:
    ours, theirs = pair(REPLAY_INGRESS, INGRESS_DIMS)
    rings: list[str] = []
    producer = ReplayIngress(ours, INGRESS_DIMS).producer(lambda: rings.append("learner"))
    consumer = ReplayIngress(theirs, INGRESS_DIMS).consumer(lambda: rings.append("collector"))
    for seq in range(5):
        slot = producer.try_claim()
        assert slot is not None
        for part, array in enumerate(slot.payload()):
            array[...] = 10 * seq + part
        producer.commit()
        got = consumer.try_acquire()
        assert got is not None
        assert got.seq == seq
        assert [float(array.max()) for array in got.payload()] == [
            float(10 * seq + part) for part in range(9)
        ]
        consumer.release()
    assert rings == ["learner", "collector"] * 5
    assert consumer.try_acquire() is None


def test_ingress_pushes_back_when_full_and_goes_on_after_a_release(pair: Pair) -> None:
    ours, theirs = pair(REPLAY_INGRESS, INGRESS_DIMS)
    producer = ReplayIngress(ours).producer()
    consumer = ReplayIngress(theirs).consumer()
    for remaining in (2, 1):
        assert producer.remaining_capacity == remaining
        assert producer.try_claim() is not None
        producer.commit()
    assert producer.remaining_capacity == 0
    assert producer.try_claim() is None
    assert consumer.try_acquire() is not None
    assert producer.try_claim() is None
    consumer.release()
    assert producer.try_claim() is not None


def test_ingress_abort_is_as_if_never_claimed(pair: Pair) -> None:
    ours, theirs = pair(REPLAY_INGRESS, INGRESS_DIMS)
    producer, consumer = ReplayIngress(ours).producer(), ReplayIngress(theirs).consumer()
    producer.try_claim()
    producer.abort()
    assert consumer.try_acquire() is None
    slot = producer.try_claim()
    assert slot is not None
    assert slot.seq == 0


def test_ingress_close_reaches_the_producer(pair: Pair) -> None:
    ours, theirs = pair(REPLAY_INGRESS, INGRESS_DIMS)
    producer, consumer = ReplayIngress(ours).producer(), ReplayIngress(theirs).consumer()
    consumer.close()
    with pytest.raises(Closed):
        producer.try_claim()


def test_ingress_gauges_by_hand(pair: Pair) -> None:
    ours, theirs = pair(REPLAY_INGRESS, INGRESS_DIMS)
    producer, consumer = ReplayIngress(ours).producer(), ReplayIngress(theirs).consumer()
    for _ in range(2):
        producer.try_claim()
        producer.commit()
    consumer.try_acquire()
    consumer.release()
    producer.note_wait(0)
    producer.note_wait(1_500_000_000)
    producer.note_drop("closed")
    producer.note_drop("stop")
    producer.note_drop("stop")
    assert ReplayIngress(theirs).gauges() == {
        "ingress_depth": 2,
        "ingress_slot_rows": 4,
        "published_sequence": 2,
        "release_sequence": 1,
        "occupancy": 1,
        "high_water_occupancy": 2,
        "backpressure_waits": 1,
        "backpressure_wait_s": 1.5,
        "early_returns": 3,
        "dropped_batches": 3,
        "closed_returns": 1,
        "stop_returns": 2,
    }


def test_ingress_refuses_misuse(pair: Pair) -> None:
    ours, theirs = pair(REPLAY_INGRESS, INGRESS_DIMS)
    producer, consumer = ReplayIngress(ours).producer(), ReplayIngress(theirs).consumer()
    for misuse in (producer.commit, producer.abort, consumer.release):
        with pytest.raises(IpcError, match="without"):
            misuse()
    producer.try_claim()
    with pytest.raises(IpcError, match="earlier claim"):
        producer.try_claim()
    producer.commit()
    consumer.try_acquire()
    with pytest.raises(IpcError, match="earlier slot"):
        consumer.try_acquire()


@pytest.mark.parametrize("count", [-1, 3, 2**62, -(2**63)])
def test_ingress_believes_no_impossible_count(pair: Pair, count: int) -> None:
    ours, theirs = pair(REPLAY_INGRESS, INGRESS_DIMS)
    producer, consumer = ReplayIngress(ours).producer(), ReplayIngress(theirs).consumer()
    ours.view["published_count"][()] = count
    with pytest.raises(SegmentCorrupt):
        consumer.try_acquire()
    ours.view["released_count"][()] = count
    with pytest.raises(SegmentCorrupt):
        producer.try_claim()


def test_ingress_notices_a_slot_that_is_not_the_expected_one(pair: Pair) -> None:
    ours, theirs = pair(REPLAY_INGRESS, INGRESS_DIMS)
    producer, consumer = ReplayIngress(ours).producer(), ReplayIngress(theirs).consumer()
    producer.try_claim()
    producer.commit()
    ours.view["seq"][0] = 1
    with pytest.raises(SegmentCorrupt, match="sequence 0"):
        consumer.try_acquire()


def test_ingress_checksum_catches_one_flipped_bit_in_any_array(pair: Pair) -> None:
    ours, theirs = pair(REPLAY_INGRESS, INGRESS_DIMS)
    producer = ReplayIngress(ours, debug=True).producer()
    consumer = ReplayIngress(theirs).consumer()
    slot = producer.try_claim()
    assert slot is not None
    producer.commit()
    for array in slot.payload():
        raw = array.view(np.uint8).reshape(-1)
        raw[-1] ^= 1
        with pytest.raises(SegmentCorrupt, match="checksum"):
            consumer.try_acquire()
        raw[-1] ^= 1
    assert consumer.try_acquire() is not None


def test_ingress_debug_poisons_released_slots(pair: Pair) -> None:
    ours, theirs = pair(REPLAY_INGRESS, INGRESS_DIMS)
    producer = ReplayIngress(ours).producer()
    consumer = ReplayIngress(theirs, debug=True).consumer()
    producer.try_claim()
    producer.commit()
    slot = consumer.try_acquire()
    assert slot is not None
    consumer.release()
    assert np.isnan(slot.obs).all()
    assert (slot.terminated == 255).all()


def test_ingress_sides_that_attach_again_go_on_where_they_were(pair: Pair) -> None:
    ours, theirs = pair(REPLAY_INGRESS, INGRESS_DIMS)
    producer, consumer = ReplayIngress(ours).producer(), ReplayIngress(theirs).consumer()
    for _ in range(3):
        producer.try_claim()
        producer.commit()
        consumer.try_acquire()
        consumer.release()
    slot = ReplayIngress(ours).producer().try_claim()
    assert slot is not None
    assert slot.seq == 3
    assert ReplayIngress(theirs).consumer().occupancy == 0


def test_wrong_geometry_is_refused(pair: Pair) -> None:
    ours, _ = pair(REPLAY_INGRESS, INGRESS_DIMS)
    with pytest.raises(ValueError, match="geometry"):
        ReplayIngress(ours, {**INGRESS_DIMS, "D": 3})


# metric queue


def test_queue_broadcasts_to_every_reader(pair: Pair) -> None:
    ours, theirs = pair(METRIC_QUEUE, ring_dims(4096))
    writer = RingWriter(ours)
    early = RingReader(theirs)
    assert early.read() == []
    records = [{"n": n, "x": [n] * 3, "s": "ü"} for n in range(5)]
    for record in records:
        assert writer.write(record)
    late = RingReader(theirs)
    newest_only = RingReader(theirs, from_oldest=False)
    assert early.read(max_records=2) == records[:2]
    assert early.read() == records[2:]
    assert late.read() == records
    assert newest_only.read() == []
    writer.write({"n": 5})
    assert [reader.read() for reader in (early, late, newest_only)] == [[{"n": 5}]] * 3
    assert early.lapped_count == late.lapped_count == newest_only.lapped_count == 0


def test_queue_counts_exactly_what_a_slow_reader_lost(pair: Pair) -> None:
    ours, theirs = pair(METRIC_QUEUE, ring_dims(1024))
    writer, reader = RingWriter(ours), RingReader(theirs)
    writer.write({"n": 0})
    assert [record["n"] for record in reader.read()] == [0]
    for n in range(1, 1000):
        writer.write({"n": n})
    seen = [record["n"] for record in reader.read()]
    assert seen == list(range(1000 - len(seen), 1000))
    assert reader.lapped_count == 999 - len(seen)
    assert reader.invalid_count == 0


def test_queue_refuses_and_counts_what_it_cannot_take(pair: Pair) -> None:
    ours, theirs = pair(METRIC_QUEUE, ring_dims(1024))
    writer, reader = RingWriter(ours), RingReader(theirs)
    deep: dict[str, object] = {}
    for _ in range(2000):
        deep = {"d": deep}
    for record in ({"x": object()}, {"x": "y" * 300}, {"x": 2**80}, {"x": {1, 2}}, deep):
        assert not writer.write(record)
    assert writer.dropped_count == reader.writer_dropped_count == 5
    assert writer.write({"ok": 1})
    assert reader.read() == [{"ok": 1}]


def test_queue_takes_numpy_scalars_and_nan(pair: Pair) -> None:
    ours, theirs = pair(METRIC_QUEUE, ring_dims(1024))
    writer, reader = RingWriter(ours), RingReader(theirs)
    assert writer.write({"a": np.float32(0.5), "b": np.int64(3), "c": float("nan")})
    (record,) = reader.read()
    assert (record["a"], record["b"]) == (0.5, 3)
    assert record["c"] != record["c"]


# rollout ring


def rollout_geometry() -> dict[str, int]:
    return rollout_dims(
        slots=2, steps=3, num_envs=2, obs_width=4, critic_obs_width=5, action_width=1
    )


def test_rollouts_arrive_in_order_with_their_versions(pair: Pair) -> None:
    ours, theirs = pair(ROLLOUT_RING, rollout_geometry())
    producer = RolloutRing(ours, debug=True).producer()
    consumer = RolloutRing(theirs, rollout_geometry()).consumer()
    for seq in range(5):
        slot = producer.try_claim()
        assert slot is not None
        for part, array in enumerate(slot.payload()):
            array[...] = 20 * seq + part
        slot.set_versions(policy_version=100 + seq, normaliser_version=200 + seq)
        producer.commit()
        got = consumer.try_acquire()
        assert got is not None
        assert (got.seq, got.policy_version, got.normaliser_version) == (seq, 100 + seq, 200 + seq)
        assert [float(array.min()) for array in got.payload()[:10]] == [
            float(20 * seq + part) for part in range(10)
        ]
        consumer.release()
    assert consumer.try_acquire() is None


def test_rollout_shapes_include_the_last_observation(pair: Pair) -> None:
    ours, _ = pair(ROLLOUT_RING, rollout_geometry())
    slot = RolloutRing(ours).producer().try_claim()
    assert slot is not None
    assert slot.obs.shape == (4, 2, 4)
    assert slot.critic_obs.shape == (4, 2, 5)
    assert slot.actions.shape == slot.mean.shape == (3, 2, 1)
    assert slot.std.shape == (1,)
    assert slot.log_prob.shape == slot.reward.shape == (3, 2)
    assert slot.terminated.shape == slot.truncated.shape == (3, 2)
    assert slot.final_critic_obs.shape == (3, 2, 5)


def test_a_full_rollout_ring_pushes_back(pair: Pair) -> None:
    ours, theirs = pair(ROLLOUT_RING, rollout_geometry())
    producer, consumer = RolloutRing(ours).producer(), RolloutRing(theirs).consumer()
    for _ in range(2):
        assert producer.try_claim() is not None
        producer.commit()
    assert producer.try_claim() is None
    producer.note_wait(2_500_000_000)
    assert consumer.try_acquire() is not None
    consumer.release()
    producer.try_claim()
    producer.abort()
    producer.note_drop("stop")
    assert RolloutRing(theirs).gauges() == {
        "slots": 2,
        "published_sequence": 2,
        "release_sequence": 1,
        "occupancy": 1,
        "high_water_occupancy": 2,
        "backpressure_waits": 1,
        "backpressure_wait_s": 2.5,
        "dropped_rollouts": 1,
    }


def test_rollout_checksum_covers_every_array_and_both_versions(pair: Pair) -> None:
    ours, theirs = pair(ROLLOUT_RING, rollout_geometry())
    producer = RolloutRing(ours, debug=True).producer()
    consumer = RolloutRing(theirs).consumer()
    slot = producer.try_claim()
    assert slot is not None
    producer.commit()
    assert len(slot.payload()) == 13
    for array in slot.payload():
        raw = array.view(np.uint8).reshape(-1)
        raw[-1] ^= 1
        with pytest.raises(SegmentCorrupt, match="checksum"):
            consumer.try_acquire()
        raw[-1] ^= 1
    assert consumer.try_acquire() is not None


# policy snapshot


@pytest.mark.parametrize("num_values", [1, 2, 7])
def test_snapshots_newest_wins(pair: Pair, num_values: int) -> None:
    ours, theirs = pair(POLICY_SNAPSHOT, snapshot_dims(num_values))
    rings: list[int] = []
    writer = SnapshotWriter(ours, lambda: rings.append(1))
    reader = SnapshotReader(theirs)
    assert reader.try_fetch() is None
    for version in range(5):
        writer.publish(np.full(num_values, version, np.float32), version, 10 * version)
    assert len(rings) == 5
    snapshot = reader.try_fetch()
    assert snapshot is not None
    assert (snapshot.version, snapshot.normaliser_version, snapshot.seq) == (4, 40, 4)
    assert snapshot.values.tolist() == [4.0] * num_values
    assert reader.try_fetch() is None
    assert reader.last is snapshot
    assert (reader.torn_count, reader.kept_count) == (0, 0)


def test_a_snapshot_is_not_changed_by_the_publications_after_it(pair: Pair) -> None:
    ours, theirs = pair(POLICY_SNAPSHOT, snapshot_dims(3))
    writer, reader = SnapshotWriter(ours), SnapshotReader(theirs)
    writer.publish(np.ones(3, np.float32), 1)
    first = reader.try_fetch()
    assert first is not None
    for version in (2, 3):
        writer.publish(np.full(3, version, np.float32), version)
    assert first.values.tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        first.values[0] = 2.0


def test_a_damaged_cell_is_never_used(pair: Pair) -> None:
    ours, theirs = pair(POLICY_SNAPSHOT, snapshot_dims(5))
    writer, reader = SnapshotWriter(ours), SnapshotReader(theirs)
    writer.publish(np.ones(5, np.float32), 1)
    assert reader.try_fetch() is not None
    writer.publish(np.full(5, 2.0, np.float32), 2)
    for field in ("values", "cell_version", "cell_normaliser", "cell_checksum"):
        cell = ours.view[field][1:]
        raw = cell.view(np.uint8) if field == "values" else cell.view(np.int64)
        raw[0, ...] ^= 1
        assert reader.try_fetch() is None
        raw[0, ...] ^= 1
    assert reader.kept_count == 4
    assert reader.torn_count == 16
    assert reader.last is not None
    assert reader.last.version == 1
    newest = reader.try_fetch()
    assert newest is not None
    assert newest.version == 2


def test_a_writer_that_attaches_again_goes_on(pair: Pair) -> None:
    ours, theirs = pair(POLICY_SNAPSHOT, snapshot_dims(2))
    SnapshotWriter(ours).publish(np.ones(2, np.float32), 1)
    SnapshotWriter(ours).publish(np.full(2, 2.0, np.float32), 2)
    snapshot = SnapshotReader(theirs).try_fetch()
    assert snapshot is not None
    assert (snapshot.version, snapshot.seq) == (2, 1)


@pytest.mark.parametrize("seq", [-2, 2**62, -(2**63)])
def test_an_impossible_publication_number_is_refused(pair: Pair, seq: int) -> None:
    ours, theirs = pair(POLICY_SNAPSHOT, snapshot_dims(2))
    reader = SnapshotReader(theirs)
    ours.view["newest_seq"][()] = seq
    with pytest.raises(SegmentCorrupt):
        reader.try_fetch()
    with pytest.raises(SegmentCorrupt):
        SnapshotWriter(ours)


def test_snapshots_of_another_shape_are_refused_before_anything_is_written(pair: Pair) -> None:
    ours, theirs = pair(POLICY_SNAPSHOT, snapshot_dims(2))
    writer, reader = SnapshotWriter(ours), SnapshotReader(theirs)
    writer.publish(np.ones(2, np.float32), 1)
    with pytest.raises(ValueError, match=r"shape \(2,\), got \(3,\)"):
        writer.publish(np.ones(3, np.float32), 2)
    snapshot = reader.try_fetch()
    assert snapshot is not None
    assert snapshot.version == 1
