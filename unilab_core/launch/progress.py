"""Plain progress lines from the learner's ring, for terminals without a panel."""

from unilab_core.telemetry.plain import note_line, progress_line
from unilab_core.telemetry.records import (
    IterationReport,
    Note,
    RecordError,
    RunInfo,
    parse_record,
)
from unilab_ipc.clock import Clock
from unilab_ipc.memory import Segment
from unilab_ipc.metric_queue import RingReader

PERIOD_S = 5.0


class Progress:
    """Reads what is new; at most one progress line per period, every note at once."""

    def __init__(self, ring: Segment, clock: Clock) -> None:
        self._reader = RingReader(ring)
        self._clock = clock
        self._run: RunInfo | None = None
        self._newest: IterationReport | None = None
        self._next_ns = clock.now_ns()

    def lines(self, *, last: bool = False) -> list[str]:
        """Lines to print now; `last` ignores the period, so that the final state is shown."""
        lines: list[str] = []
        while records := self._reader.read():
            for record in records:
                self._take(record, lines)
        due = last or self._clock.now_ns() >= self._next_ns
        if due and self._newest is not None and self._run is not None:
            lines.append(progress_line(self._newest, self._run))
            self._newest = None
            self._next_ns = self._clock.now_ns() + round(PERIOD_S * 1e9)
        return lines

    def skip(self) -> None:
        """Forget what has been written so far: the panel has shown it."""
        self.lines()

    def _take(self, record: dict, lines: list[str]) -> None:
        try:
            report = parse_record(record)
        except RecordError:
            return  # a reader counts damage elsewhere; a progress line has no use for it
        if isinstance(report, RunInfo):
            self._run = report
        elif isinstance(report, IterationReport):
            self._newest = report
        elif isinstance(report, Note):
            lines.append(note_line(report))
