"""Times of progress lines: stamped, seen arriving, or anchored in the sample flow.

Anchors: a header is about the first event of its step, `end update actor` the last training event
of the step, `end sync params` its synchronisation, a finished task its reward. An anchor that
would run backwards against the headers is not used, and nothing is interpolated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unilab_core.telemetry.rl_trace.progress_fold import NO_LINE, Segment
from unilab_core.telemetry.rl_trace.progress_store import ARRIVAL, EXACT, ProgressStore

SOURCES = {EXACT: "exact", ARRIVAL: "arrival"}


@dataclass(frozen=True, slots=True)
class Anchors:
    """Unix ms of events of the sample flow."""

    step_starts: Mapping[int, int] = field(default_factory=dict)
    update_ends: Mapping[int, int] = field(default_factory=dict)
    sync_ends: Mapping[int, int] = field(default_factory=dict)
    rewards: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """(uid, index) to time, for the newest tasks."""
    span: tuple[int, int] | None = None
    """First and last event of the job."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time and where it comes from (`exact`, `arrival`, `anchor`)."""

    unix_ms: int
    source: str


class ProgressTimes:
    """Times of lines for one set of figures."""

    def __init__(self, store: ProgressStore, anchors: Anchors) -> None:
        self._store = store
        self._anchors = anchors

    def at(self, line: int) -> Moment | None:
        """Stamped or arrival time of a line."""
        if line == NO_LINE or not self._store.source[line]:
            return None
        return Moment(self._store.when_ms[line], SOURCES[self._store.source[line]])

    def header(self, step: int, line: int) -> Moment | None:
        """Time of a step's header."""
        return self.at(line) or _anchor(self._anchors.step_starts.get(step))

    def stage_end(self, step: int, stage: str, line: int) -> Moment | None:
        """Time of the end of a stage."""
        known = self.at(line)
        if known is not None or line == NO_LINE:
            return known
        if stage == "update actor":
            return _anchor(self._anchors.update_ends.get(step))
        if stage == "sync params":
            return _anchor(self._anchors.sync_ends.get(step))
        return None

    def task(self, uid: str, index: int, line: int) -> Moment | None:
        """Time of a finished task."""
        return self.at(line) or _anchor(self._anchors.rewards.get((uid, index)))

    def headers(self, steps: list[int], lines: list[int]) -> list[tuple[int, Moment]]:
        """(step, time) of the headers that have one, never running backwards."""
        timed: list[tuple[int, Moment]] = []
        for step, line in zip(steps, lines, strict=True):
            moment = self.header(step, line)
            if moment is None:
                continue
            if moment.source == "anchor" and timed and moment.unix_ms < timed[-1][1].unix_ms:
                continue
            timed.append((step, moment))
        return timed

    def window(self, segment: Segment) -> tuple[int | None, int | None]:
        """Start and end of a window in Unix ms."""
        start, end = self.at(segment[0]), self.at(segment[1])
        return (start.unix_ms if start else None, end.unix_ms if end else None)

    def anchors_of(self, step: int) -> tuple[int | None, int | None]:
        """What ends of stages of a step fall back to."""
        return self._anchors.update_ends.get(step), self._anchors.sync_ends.get(step)

    def ends_of(self, order: Sequence[int], low: int, high: int) -> tuple[int, int] | None:
        """Earliest and latest known time of the lines `order[low:high + 1]`, in file order."""
        source, when_ms = self._store.source, self._store.when_ms
        ahead = (order[at] for at in range(low, high + 1))
        back = (order[at] for at in range(high, low - 1, -1))
        first = next((when_ms[line] for line in ahead if source[line]), None)
        last = next((when_ms[line] for line in back if source[line]), None)
        return None if first is None or last is None else (first, max(first, last))


def _anchor(unix_ms: int | None) -> Moment | None:
    return None if unix_ms is None else Moment(unix_ms, "anchor")
