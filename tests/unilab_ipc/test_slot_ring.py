"""Interleavings of the slot ring: every schedule, with a crash at each point, then a restart.

Each slot is written and read in two halves. A crash must leave each item delivered whole or not at
all, and whatever the survivor does next must find a ring that still makes sense.
"""

from collections.abc import Callable, Iterator

import pytest

from unilab_ipc.memory import Segment, local_segment
from unilab_ipc.replay_ingress import ReplayIngress, TransitionSlot
from unilab_ipc.segments import REPLAY_INGRESS
from unilab_ipc.slot_ring import SlotConsumer, SlotProducer

Role = Iterator[str | Callable[[], bool]]

DIMS = {"D": 1, "E": 2, "O": 1, "C": 1, "A": 1}
ITEMS = 2


class Flag:
    """A doorbell without a kernel."""

    def __init__(self) -> None:
        self.up = False

    def ring(self) -> None:
        self.up = True

    def is_up(self) -> bool:
        return self.up


def producer_role(port: SlotProducer[TransitionSlot], bell: Flag) -> Role:
    for item in range(ITEMS):
        while (slot := port.try_claim()) is None:
            yield bell.is_up
            bell.up = False
        slot.reward[0] = item + 1
        yield "half written"
        slot.reward[1] = item + 1
        yield from port._commit_steps()


def consumer_role(port: SlotConsumer[TransitionSlot], bell: Flag, seen: list[list[float]]) -> Role:
    for _ in range(ITEMS):
        while (slot := port.try_acquire()) is None:
            yield bell.is_up
            bell.up = False
        first = float(slot.reward[0])
        yield "half read"
        seen.append([first, float(slot.reward[1])])
        yield from port._release_steps()


def hasty_consumer_role(
    port: SlotConsumer[TransitionSlot], bell: Flag, seen: list[list[float]]
) -> Role:
    """The planted fault: releases the slot before the second half was read."""
    for _ in range(ITEMS):
        while (slot := port.try_acquire()) is None:
            yield bell.is_up
            bell.up = False
        first = float(slot.reward[0])
        yield from port._release_steps()
        seen.append([first, float(slot.reward[1])])


def drain(segment: Segment) -> list[float]:
    """What a fresh consumer still finds."""
    consumer = ReplayIngress(segment).consumer()
    found: list[float] = []
    while (slot := consumer.try_acquire()) is not None:
        found.append(float(slot.reward[1]))
        assert slot.reward[0] == slot.reward[1]
        consumer.release()
    return found


def build_with(consumer: Callable[..., Role], depth: int = 1) -> Callable[[], object]:
    def build() -> tuple[list[Role], Callable[[list[str]], None]]:
        segment = local_segment(REPLAY_INGRESS, {**DIMS, "D": depth})
        ring = ReplayIngress(segment)
        to_producer, to_consumer = Flag(), Flag()
        seen: list[list[float]] = []
        roles = [
            producer_role(ring.producer(to_consumer.ring), to_producer),
            consumer(ring.consumer(to_producer.ring), to_consumer, seen),
        ]

        def check(fates: list[str]) -> None:
            if "crashed" not in fates:
                assert fates == ["done", "done"]
            assert seen == [[n + 1.0] * 2 for n in range(len(seen))]
            gauges = ring.gauges()
            assert 0 <= gauges["occupancy"] <= gauges["high_water_occupancy"] <= depth
            published = int(gauges["published_sequence"])
            # A reader that died inside a slot has it delivered again, never skipped.
            rest = drain(segment)
            assert rest == [n + 1.0 for n in range(int(gauges["release_sequence"]), published)]
            assert len(seen) >= gauges["release_sequence"]
            assert len(seen) - int(gauges["release_sequence"]) <= 1
            # And the ring goes on.
            producer = ReplayIngress(segment).producer()
            slot = producer.try_claim()
            assert slot is not None
            slot.reward[...] = published + 1
            producer.commit()
            assert drain(segment) == [published + 1.0]

        return roles, check

    return build


@pytest.mark.parametrize("depth", [1, 2])
def test_every_schedule_delivers_everything_once_and_none_hangs(
    explore: Callable[..., int], depth: int
) -> None:
    assert explore(build_with(consumer_role, depth), crashes=False) > 50


@pytest.mark.parametrize("depth", [1, 2])
def test_a_crash_at_any_point_loses_and_doubles_nothing(
    explore: Callable[..., int], depth: int
) -> None:
    assert explore(build_with(consumer_role, depth)) > 400


def test_the_explorer_finds_a_consumer_that_releases_too_early(
    explore: Callable[..., int],
) -> None:
    with pytest.raises(AssertionError):
        explore(build_with(hasty_consumer_role), crashes=False)
