"""The manual clock, and that the real one does not go back."""

import pytest

from unilab_ipc.clock import ManualClock, MonotonicClock


def test_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(5)
    assert clock.now_ns() == clock.now_ns() == 5
    clock.advance_s(1.5)
    clock.advance_ns(3)
    assert clock.now_ns() == 1_500_000_008


def test_manual_clock_never_goes_back() -> None:
    with pytest.raises(ValueError, match="-1"):
        ManualClock().advance_ns(-1)


def test_monotonic_clock_does_not_go_back() -> None:
    clock = MonotonicClock()
    times = [clock.now_ns() for _ in range(1000)]
    assert times == sorted(times)
