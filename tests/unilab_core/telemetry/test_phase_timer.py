"""Phases are exclusive and sum, with the rest, to the wall."""

from __future__ import annotations

import pytest

from unilab_core.telemetry import phase_timer
from unilab_core.telemetry.phase_timer import NS_PER_MS, PhaseTimer


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now_ns = 5_000

        def advance_ms(self, ms):
            self.now_ns += int(ms * NS_PER_MS)

    clock = Clock()
    monkeypatch.setattr(phase_timer.time, "monotonic_ns", lambda: clock.now_ns)
    return clock


def test_time_goes_to_the_phase_that_ends_and_to_no_other(clock):
    timer = PhaseTimer(["a", "b"])
    timer.start_cycle()
    clock.advance_ms(2)
    timer.lap("a")
    clock.advance_ms(3)
    timer.lap(None)
    clock.advance_ms(5)
    timer.lap("b")
    clock.advance_ms(1)
    timer.start_cycle()
    assert timer.mean_ms() == {"a": 2.0, "b": 5.0}
    assert timer.mean_wall_ms() == 11.0


def test_a_window_averages_over_its_cycles_and_starts_again_after_clear(clock):
    timer = PhaseTimer(["a"])
    timer.start_cycle()
    for ms in (2, 4):
        clock.advance_ms(ms)
        timer.lap("a")
        timer.start_cycle()
    assert (timer.cycles, timer.mean_ms()["a"], timer.mean_wall_ms()) == (2, 3.0, 3.0)
    timer.clear()
    assert (timer.mean_ms(), timer.mean_wall_ms()) == ({}, None)
    clock.advance_ms(7)
    timer.lap("a")
    timer.start_cycle()
    assert timer.mean_ms() == {"a": 7.0}


def test_the_running_cycle_does_not_count_before_its_end(clock):
    timer = PhaseTimer(["a"])
    timer.start_cycle()
    clock.advance_ms(2)
    timer.lap("a")
    timer.start_cycle()
    clock.advance_ms(9)
    timer.lap("a")
    assert timer.mean_ms() == {"a": 2.0}
    timer.clear()
    clock.advance_ms(1)
    timer.start_cycle()
    # Cleared in the middle: the whole second cycle belongs to the new window.
    assert (timer.mean_ms(), timer.mean_wall_ms()) == ({"a": 9.0}, 10.0)


def test_an_abandoned_cycle_leaves_no_wall(clock):
    timer = PhaseTimer(["a"])
    timer.start_cycle()
    clock.advance_ms(50)
    timer.abandon_cycle()
    timer.start_cycle()
    assert timer.cycles == 0
    assert timer.wall_ns == 0


def test_an_undeclared_phase_is_refused(clock):
    timer = PhaseTimer(["a"])
    timer.start_cycle()
    with pytest.raises(KeyError):
        timer.lap("b")
