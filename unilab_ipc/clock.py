"""Time for ages and time limits: CLOCK_MONOTONIC nanoseconds, comparable between processes.

Wall-clock time is for display only and never enters a decision. `ManualClock` lets a test move
time by hand.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of monotonic nanoseconds."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary fixed moment."""
        ...


class MonotonicClock:
    """The system's monotonic clock."""

    def now_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""
        return time.monotonic_ns()


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_ns: int = 0) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        """The moment set last."""
        return self._now_ns

    def advance_ns(self, step_ns: int) -> None:
        """Move forward; time never goes back."""
        if step_ns < 0:
            raise ValueError(f"step_ns must be >= 0, got {step_ns}")
        self._now_ns += step_ns

    def advance_s(self, step_s: float) -> None:
        """Move forward by seconds."""
        self.advance_ns(round(step_s * 1e9))
