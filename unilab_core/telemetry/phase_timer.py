"""Exclusive phases of one loop, measured with a single monotonic clock.

A loop calls ``start_cycle()`` once per turn and ``lap(name)`` at the end of each phase: the time
since the previous mark belongs to that phase and to no other, so phases never overlap and what no
phase claims (``other``) is the rest of the measured wall. Durations are integers in ns until they
are reported.

    start_cycle   lap(a)      lap(b)        lap(skip=None)  lap(c)      start_cycle
        |----a------|-----b------|---(other)------|----c------|--(other)--|
"""

from __future__ import annotations

import time
from collections.abc import Iterable

NS_PER_MS = 1_000_000


class PhaseTimer:
    """Accumulates exclusive phase times over completed cycles.

    What the running cycle has spent so far counts only once that cycle is complete, so phases and
    wall always speak of the same cycles.

    Attributes:
        phase_ns: time per phase in the cycles completed since ``clear()``, in ns.
        wall_ns: sum of those cycles, in ns.
        cycles: their number.
    """

    __slots__ = ("_cycle_start_ns", "_mark_ns", "_running_ns", "cycles", "phase_ns", "wall_ns")

    def __init__(self, phases: Iterable[str]) -> None:
        self.phase_ns: dict[str, int] = dict.fromkeys(phases, 0)
        self.wall_ns = 0
        self.cycles = 0
        self._running_ns = dict(self.phase_ns)
        self._cycle_start_ns: int | None = None
        self._mark_ns = 0

    def start_cycle(self) -> int:
        """Close the running cycle, open the next one, return its start (monotonic ns)."""
        now_ns = time.monotonic_ns()
        running = self._running_ns
        if self._cycle_start_ns is not None:
            self.wall_ns += now_ns - self._cycle_start_ns
            self.cycles += 1
            for phase, spent_ns in running.items():
                self.phase_ns[phase] += spent_ns
        for phase in running:
            running[phase] = 0
        self._cycle_start_ns = now_ns
        self._mark_ns = now_ns
        return now_ns

    def lap(self, phase: str | None) -> int:
        """Give the time since the last mark to ``phase`` (``None``: to no phase); return it in ns.

        Raises:
            KeyError: the phase was not declared.
        """
        now_ns = time.monotonic_ns()
        spent_ns = now_ns - self._mark_ns
        self._mark_ns = now_ns
        if phase is not None:
            self._running_ns[phase] += spent_ns
        return spent_ns

    def abandon_cycle(self) -> None:
        """Forget the running cycle (the loop paused for a reason that is not a phase)."""
        self._cycle_start_ns = None

    def mean_ms(self) -> dict[str, float]:
        """Mean time per phase and completed cycle, in ms; empty before the first cycle."""
        if self.cycles == 0:
            return {}
        scale = 1.0 / (NS_PER_MS * self.cycles)
        return {phase: spent_ns * scale for phase, spent_ns in self.phase_ns.items()}

    def mean_wall_ms(self) -> float | None:
        """Mean wall time per completed cycle, in ms."""
        return None if self.cycles == 0 else self.wall_ns / (NS_PER_MS * self.cycles)

    def clear(self) -> None:
        """Start a new averaging window; the running cycle goes on."""
        for phase in self.phase_ns:
            self.phase_ns[phase] = 0
        self.wall_ns = 0
        self.cycles = 0
