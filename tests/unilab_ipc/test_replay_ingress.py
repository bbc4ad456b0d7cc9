"""Shapes and sizes of the replay ingress (its protocol: test_slot_ring and the ring contract)."""

import numpy as np

from unilab_ipc.memory import local_segment
from unilab_ipc.replay_ingress import DEFAULT_DEPTH, ReplayIngress
from unilab_ipc.segments import REPLAY_INGRESS

DIMS = {"D": DEFAULT_DEPTH, "E": 3, "O": 4, "C": 5, "A": 2}


def test_a_slot_is_one_vector_tick() -> None:
    slot = ReplayIngress(local_segment(REPLAY_INGRESS, DIMS)).producer().try_claim()
    assert slot is not None
    assert [array.shape for array in slot.payload()] == [
        (3, 4),
        (3, 5),
        (3, 2),
        (3,),
        (3,),
        (3,),
        (3,),
        (3, 4),
        (3, 5),
    ]
    assert {array.dtype for array in slot.payload()} == {np.dtype("<f4"), np.dtype("u1")}
    assert all(array.flags.c_contiguous for array in slot.payload())


def test_default_depth_is_two_ticks() -> None:
    assert DEFAULT_DEPTH == 2


def test_slots_do_not_overlap() -> None:
    ring = ReplayIngress(local_segment(REPLAY_INGRESS, DIMS))
    producer, consumer = ring.producer(), ring.consumer()
    for value in (1.0, 2.0):
        slot = producer.try_claim()
        assert slot is not None
        for array in slot.payload():
            array[...] = value
        producer.commit()
    for value in (1.0, 2.0):
        slot = consumer.try_acquire()
        assert slot is not None
        assert all((array == value).all() for array in slot.payload())
        consumer.release()
