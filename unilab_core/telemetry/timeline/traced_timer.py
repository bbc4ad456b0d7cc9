"""A phase timer whose laps also reach the timeline: same marks, hence the same durations.

A loop gets this timer in place of the plain one when tracing is on, and knows nothing of it. Every
lap goes to the handler of its phase; a completed cycle goes to `on_cycle`. What a handler costs
falls into the phase that follows.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from unilab_core.telemetry.phase_timer import PhaseTimer
from unilab_core.telemetry.timeline.recorder import CpuTimes

LapHandler = Callable[[int, int, CpuTimes | None], None]
"""Begin and end of a lap, and the CPU time of the thread at both where that is measured."""
CycleHandler = Callable[[int, int], None]
"""Begin and end of a completed cycle."""


class TracedTimer(PhaseTimer):
    """See the module docstring."""

    __slots__ = ("_handlers", "_on_cycle")

    def __init__(
        self,
        phases: Iterable[str],
        handlers: Mapping[str | None, LapHandler],
        on_cycle: CycleHandler,
    ) -> None:
        super().__init__(phases)
        self._handlers = handlers
        self._on_cycle = on_cycle

    def start_cycle(self) -> int:
        """As the plain timer; the completed cycle is recorded."""
        began_ns = self._cycle_start_ns
        now_ns = super().start_cycle()
        if began_ns is not None:
            self._on_cycle(began_ns, now_ns)
        return now_ns

    def lap(self, phase: str | None) -> int:
        """As the plain timer; the phase is recorded."""
        began_ns = self._mark_ns
        spent_ns = super().lap(phase)
        handler = self._handlers.get(phase)
        if handler is not None:
            handler(began_ns, began_ns + spent_ns, self._cpu_times())
        return spent_ns

    def _cpu_times(self) -> CpuTimes | None:
        return None


class CpuTracedTimer(TracedTimer):
    """Also the CPU time of the thread (`training.trace_thread_time`): one more clock a lap."""

    __slots__ = ("_cpu_ns",)

    def __init__(
        self,
        phases: Iterable[str],
        handlers: Mapping[str | None, LapHandler],
        on_cycle: CycleHandler,
    ) -> None:
        super().__init__(phases, handlers, on_cycle)
        self._cpu_ns = time.thread_time_ns()

    def start_cycle(self) -> int:
        """As above."""
        now_ns = super().start_cycle()
        self._cpu_ns = time.thread_time_ns()
        return now_ns

    def _cpu_times(self) -> CpuTimes | None:
        # Laps without a handler (`None`) leave the mark behind: their time is nobody's anyway.
        began_ns, self._cpu_ns = self._cpu_ns, time.thread_time_ns()
        return began_ns, self._cpu_ns
