"""Interleavings of the inference slot: every schedule of two roles, with a crash at each point.

Payload and answers are written in two halves, so that a role that looked too early would see a mix.
Bells are modelled as flags: a role that waits is scheduled again only after a ring, so a lost
wake-up shows as a blocked role.
"""

from collections.abc import Callable, Iterator

import pytest
from slot_steps import publish_steps, respond_steps

from unilab_ipc.errors import IpcError
from unilab_ipc.inference_slot import CollectorPort, InferenceSlot, LearnerPort
from unilab_ipc.memory import local_segment
from unilab_ipc.segments import INFERENCE_SLOT

Role = Iterator[str | Callable[[], bool]]

DIMS = {"E": 2, "O": 1, "C": 1, "A": 1, "R": 0, "L": 0}
ROUNDS = 2


class Flag:
    """A doorbell without a kernel."""

    def __init__(self) -> None:
        self.up = False

    def ring(self) -> None:
        self.up = True

    def is_up(self) -> bool:
        return self.up


def wait_for(flag: Flag, try_fn: Callable[[], object]) -> Iterator[Callable[[], bool]]:
    """What `Waiter` does: look, sleep until the bell, drain, look again."""
    while try_fn() is None:
        yield flag.is_up
        flag.up = False


def collector(port: CollectorPort, bell: Flag, seen: list[tuple[int, list[float]]]) -> Role:
    for seq in range(ROUNDS):
        port.obs[0] = seq + 1
        yield "half written"
        port.obs[1] = seq + 1
        yield from publish_steps(port, seq)
        yield from wait_for(bell, lambda seq=seq: port.try_response(seq))
        response = port.try_response(seq)
        assert response is not None
        seen.append((response.policy_version, port.actions[:, 0].tolist()))


def learner(port: LearnerPort, bell: Flag, seen: list[list[float]]) -> Role:
    for version in range(ROUNDS):
        yield from wait_for(bell, port.try_request)
        seq = port.try_request()
        assert seq is not None
        seen.append(port.obs[:, 0].tolist())
        port.actions[0] = -port.obs[0]
        yield "half answered"
        port.actions[1] = -port.obs[1]
        yield from respond_steps(port, seq, version + 10)


def hasty_collector(port: CollectorPort, bell: Flag, seen: list[tuple[int, list[float]]]) -> Role:
    """The planted fault: publishes before the payload is complete."""
    for seq in range(ROUNDS):
        port.obs[0] = seq + 1
        yield from publish_steps(port, seq)
        port.obs[1] = seq + 1
        yield from wait_for(bell, lambda seq=seq: port.try_response(seq))
        seen.append((0, []))


def build_with(collector_role: Callable[..., Role]) -> Callable[[], object]:
    def build() -> tuple[list[Role], Callable[[list[str]], None]]:
        slot = InferenceSlot(local_segment(INFERENCE_SLOT, DIMS))
        to_learner, to_collector = Flag(), Flag()
        answers: list[tuple[int, list[float]]] = []
        requests: list[list[float]] = []
        roles = [
            collector_role(slot.collector_port(to_learner.ring), to_collector, answers),
            learner(slot.learner_port(to_collector.ring), to_learner, requests),
        ]

        def check(fates: list[str]) -> None:
            if "crashed" not in fates:
                assert fates == ["done", "done"]
            assert requests == [[n + 1.0] * 2 for n in range(len(requests))]
            assert answers == [(n + 10, [-(n + 1.0)] * 2) for n in range(len(answers))]
            flight = slot.flight()
            assert 0 <= flight["in_flight"] <= 1
            if fates == ["done", "done"]:
                assert flight["in_flight"] == 0

        return roles, check

    return build


def test_every_schedule_is_whole_and_none_hangs(explore: Callable[..., int]) -> None:
    assert explore(build_with(collector), crashes=False) > 50


def test_a_crash_at_any_point_leaves_nothing_mixed(explore: Callable[..., int]) -> None:
    assert explore(build_with(collector)) > 500


def test_the_explorer_finds_a_collector_that_publishes_too_early(
    explore: Callable[..., int],
) -> None:
    with pytest.raises(AssertionError):
        explore(build_with(hasty_collector), crashes=False)


def test_a_request_needs_the_answer_to_the_one_before() -> None:
    port = InferenceSlot(local_segment(INFERENCE_SLOT, DIMS)).collector_port(lambda: None)
    port.publish(0)
    with pytest.raises(IpcError, match="in flight"):
        port.publish(1)


def test_wrong_geometry_is_refused() -> None:
    with pytest.raises(ValueError, match="geometry"):
        InferenceSlot(local_segment(INFERENCE_SLOT, DIMS), {**DIMS, "A": 2})
