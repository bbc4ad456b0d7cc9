"""Geometry of the rollout ring (its protocol: test_slot_ring and the ring contract)."""

import pytest

from unilab_ipc.memory import local_segment
from unilab_ipc.rollout_ring import RolloutRing, rollout_dims
from unilab_ipc.segments import ROLLOUT_RING

SIZES = {"steps": 3, "num_envs": 2, "obs_width": 4, "critic_obs_width": 5, "action_width": 1}


def test_geometry_by_hand() -> None:
    assert rollout_dims(slots=2, **SIZES) == {
        "D": 2,
        "T": 3,
        "T1": 4,
        "E": 2,
        "O": 4,
        "C": 5,
        "A": 1,
    }


@pytest.mark.parametrize("name", ["slots", "steps", "num_envs"])
def test_empty_geometry_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=">= 1"):
        rollout_dims(**{"slots": 2, **SIZES, name: 0})


def test_slots_do_not_overlap_and_poison_reaches_the_versions() -> None:
    ring = RolloutRing(local_segment(ROLLOUT_RING, rollout_dims(slots=2, **SIZES)), debug=True)
    producer, consumer = ring.producer(), ring.consumer()
    for value in (1, 2):
        slot = producer.try_claim()
        assert slot is not None
        for array in slot.payload():
            array[...] = value
        producer.commit()
    for value in (1, 2):
        slot = consumer.try_acquire()
        assert slot is not None
        assert all((array == value).all() for array in slot.payload())
        consumer.release()
        assert slot.policy_version == slot.normaliser_version == -1
