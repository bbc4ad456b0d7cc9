"""The one waiting loop: what ends it, and that a ring is never lost."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from unilab_ipc.clock import ManualClock
from unilab_ipc.doorbell import Doorbell
from unilab_ipc.errors import Closed, PeerDead, PeerTimeout
from unilab_ipc.heartbeat import HeartbeatBoard, board_dims
from unilab_ipc.memory import local_segment
from unilab_ipc.peers import Peer, process_start_ticks
from unilab_ipc.segments import HEARTBEAT
from unilab_ipc.waiting import Waiter

Spawn = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def bell(tmp_path: Path) -> Doorbell:
    return Doorbell.create(tmp_path / "a.bell")


def never() -> bool:
    return False


def test_a_result_that_is_there_needs_no_wait(bell: Doorbell) -> None:
    waiter = Waiter(bell, [], lambda: True)
    assert waiter.wait(lambda: 0, timeout_s=0.0, awaits="learner") == 0


def test_each_ring_leads_to_another_look(bell: Doorbell) -> None:
    looks = 0

    def try_fn() -> str | None:
        nonlocal looks
        looks += 1
        bell.ring()
        return "found" if looks == 4 else None

    assert Waiter(bell, [], never).wait(try_fn, timeout_s=None, awaits="learner") == "found"
    assert looks == 4


def test_a_ring_between_drain_and_look_is_kept(bell: Doorbell) -> None:
    # The peer publishes and rings after each unsuccessful look, i.e. between look and poll.
    state = {"published": 0, "seen": 0}

    def try_fn() -> int | None:
        found = state["published"] >= 3
        state["seen"] += 1
        state["published"] += 1
        bell.ring()
        return state["seen"] if found else None

    assert Waiter(bell, [], never).wait(try_fn, timeout_s=None, awaits="learner") == 4


def test_a_result_found_after_a_wake_up_leaves_the_ring_to_the_next_wait(bell: Doorbell) -> None:
    waiter = Waiter(bell, [], never)
    answers = iter([None, "first"])
    bell.ring()
    assert waiter.wait(lambda: next(answers), timeout_s=None, awaits="learner") == "first"

    looks: list[int] = []

    def published_without_a_further_ring() -> str | None:
        looks.append(1)
        return "second"

    # The stale ring neither hides what was published meanwhile nor counts as a wake-up.
    assert waiter.wait(published_without_a_further_ring, timeout_s=0.0, awaits="x") == "second"
    assert looks == [1]
    with pytest.raises(PeerTimeout):
        waiter.wait(lambda: looks.append(1), timeout_s=0.0, awaits="x")
    assert len(looks) == 2


def test_time_limit_by_the_manual_clock_raises_peer_timeout(bell: Doorbell) -> None:
    clock = ManualClock()

    def try_fn() -> None:
        clock.advance_s(4.0)
        bell.ring()

    waiter = Waiter(bell, [], never, clock=clock)
    with pytest.raises(PeerTimeout, match="learner within 10 s"):
        waiter.wait(try_fn, timeout_s=10.0, awaits="learner")
    # Two looks per wake-up, before the drain and after it; the limit is 14 s, the fifth ends at 20.
    assert clock.now_ns() == 20_000_000_000


def test_a_result_that_came_while_suspended_beats_the_time_limit(bell: Doorbell) -> None:
    clock = ManualClock()
    looks: list[int] = []

    def try_fn() -> int | None:
        looks.append(1)
        if len(looks) == 2:
            return 7
        bell.ring()
        clock.advance_s(0.5)
        return None

    assert Waiter(bell, [], never, clock=clock).wait(try_fn, timeout_s=1.0, awaits="x") == 7


def test_zero_time_limit_looks_once(bell: Doorbell) -> None:
    with pytest.raises(PeerTimeout):
        Waiter(bell, [], never).wait(lambda: None, timeout_s=0.0, awaits="learner")


def test_a_stop_ends_the_wait_only_where_heeded(bell: Doorbell) -> None:
    waiter = Waiter(bell, [], lambda: True)
    with pytest.raises(Closed, match="learner"):
        waiter.wait(lambda: None, timeout_s=None, awaits="learner")
    with pytest.raises(PeerTimeout):
        waiter.wait(lambda: None, timeout_s=0.01, awaits="learner", heed_stop=False)


def test_a_stop_that_comes_with_a_ring_is_seen_at_once(bell: Doorbell) -> None:
    stops = iter([False, True])
    bell.ring()
    with pytest.raises(Closed):
        Waiter(bell, [], lambda: next(stops)).wait(lambda: None, timeout_s=None, awaits="x")


def test_a_signal_handler_that_sets_the_stop_flag_ends_the_wait(bell: Doorbell) -> None:
    stop: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: stop.append(1))
    try:
        bell.wake_on_signals()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Closed):
            Waiter(bell, [], lambda: bool(stop)).wait(lambda: None, timeout_s=None, awaits="x")
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGALRM, before)


def test_death_of_a_peer_ends_the_wait_and_names_it(bell: Doorbell, spawn: Spawn) -> None:
    child = spawn("import sys; sys.stdin.readline()")
    ticks = process_start_ticks(child.pid)
    assert ticks is not None
    peer = Peer("learner", 3, child.pid, ticks).open()
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    with pytest.raises(PeerDead) as caught:
        Waiter(bell, [peer], never).wait(lambda: None, timeout_s=None, awaits="learner")
    assert (caught.value.role, caught.value.rank, caught.value.pid) == ("learner", 3, child.pid)


def test_what_a_dead_peer_left_is_still_taken(bell: Doorbell, spawn: Spawn) -> None:
    child = spawn("")
    ticks = process_start_ticks(child.pid)
    assert ticks is not None
    peer = Peer("collector", 0, child.pid, ticks).open()
    looks = iter([None, "last words"])
    assert Waiter(bell, [peer], never).wait(lambda: next(looks), timeout_s=None, awaits="x") == (
        "last words"
    )


def test_the_board_shows_whom_a_role_waits_for_only_while_it_waits(bell: Doorbell) -> None:
    board = HeartbeatBoard(local_segment(HEARTBEAT, board_dims(1)))
    beat = board.role("collector", 0)
    beat.register()
    beat.phase("training/learner_action_wait")
    seen: list[str | None] = []

    def try_fn() -> int | None:
        seen.append(board.row("collector", 0).awaits)
        bell.ring()
        return 1 if len(seen) == 3 else None

    Waiter(bell, [], never, beat).wait(try_fn, timeout_s=None, awaits="learner")
    assert seen == [None, "learner", "learner"]
    assert board.row("collector", 0).awaits is None


def test_a_waiting_role_beats_but_makes_no_progress(bell: Doorbell) -> None:
    clock = ManualClock(100)
    board = HeartbeatBoard(local_segment(HEARTBEAT, board_dims(1)), clock)
    beat = board.role("collector", 0)
    beat.register(os.getpid())
    looks: list[int] = []

    def try_fn() -> int | None:
        looks.append(1)
        clock.advance_ns(7)
        bell.ring()
        return 1 if len(looks) == 3 else None

    Waiter(bell, [], never, beat, clock).wait(try_fn, timeout_s=None, awaits="learner")
    assert board.row("collector", 0).beat_ns == 100 + 14
    assert board.row("collector", 0).progress == 0


def test_an_error_in_the_look_passes_through(bell: Doorbell) -> None:
    def try_fn() -> None:
        raise Closed("ring closed")

    with pytest.raises(Closed, match="ring closed"):
        Waiter(bell, [], never).wait(try_fn, timeout_s=None, awaits="learner")
