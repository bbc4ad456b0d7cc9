"""The two time lines: the learner's Iter Wall and the collector's own clock, each with its own age.

At 96 columns and more they are two cards; below, one card `Timing` shows the learner's rows and
then the collector's.
"""

from collections.abc import Sequence

from unilab_monitor.glyphs import Glyphs
from unilab_monitor.line import ABSENT, Line, bar, fit, format_age, right
from unilab_monitor.panels.frame import Frame
from unilab_monitor.panels.line_panel import LinePanel
from unilab_monitor.timing import TimingRow, collector_rows, learner_rows
from unilab_monitor.view import CollectorView, LearnerView, View

WIDE = 120
VALUE_WIDTH = 16
MIN_LABEL_WIDTH = 12
MAX_LABEL_WIDTH = 22
MIN_BAR_WIDTH = 5
MAX_BAR_WIDTH = 24

LEARNER_TITLE = "Learner (Iter Wall)"
COLLECTOR_TITLE = "Collector (own clock)"


class Learner(LinePanel):
    """Exclusive slices of Iter Wall."""

    def lines(self, view: View, width: int) -> list[Line]:
        """Phases, Other, Iter Wall, and the alarm when the phases claim more than the wall."""
        return learner_lines(view, width, self.glyphs)

    def frame(self, view: View) -> Frame:
        """Title, and the mark of a stalled learner."""
        wide = self.screen.size.width >= WIDE
        return clock_frame(LEARNER_TITLE if wide else "Learner", view.learner)


class Collector(LinePanel):
    """The collector's cycle."""

    def lines(self, view: View, width: int) -> list[Line]:
        """Phases with the details of the environment step, Other, Cycle Wall."""
        return timing_lines(collector_rows(view), width, self.glyphs)

    def frame(self, view: View) -> Frame:
        """Title, and the mark of a stalled collector."""
        wide = self.screen.size.width >= WIDE
        return clock_frame(COLLECTOR_TITLE if wide else "Collector", view.collector)


class Timing(LinePanel):
    """Both time lines in one column, for narrow screens."""

    def lines(self, view: View, width: int) -> list[Line]:
        """Learner rows, then collector rows."""
        return both_lines(view, width, self.glyphs)

    def frame(self, view: View) -> Frame:
        """The short title; the marks are at the headings."""
        del view
        return Frame(title=(("Timing", "title"),))


def clock_frame(title: str, source: LearnerView | CollectorView) -> Frame:
    """A frame in the alarm's colour, with the age, while the source is silent."""
    mark = stall_mark(source)
    if not mark:
        return Frame(title=((title, "title"),))
    return Frame(
        title=((title, "title"),), title_right=((mark, "warn strong"),), style="frame alarm"
    )


def both_lines(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """The single column of narrow screens."""
    return [
        _heading(LEARNER_TITLE, view.learner),
        *learner_lines(view, width, glyphs),
        _heading(COLLECTOR_TITLE, view.collector),
        *timing_lines(collector_rows(view), width, glyphs),
    ]


def stall_mark(source: LearnerView | CollectorView) -> str:
    """`stalled 4.2 s`, or nothing while the source sends."""
    return (
        f"stalled {format_age(source.age_s)}" if source.stalled and source.age_s is not None else ""
    )


def learner_lines(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """The learner's rows and, when the contract is broken, the alarm."""
    lines = timing_lines(learner_rows(view), width, glyphs)
    learner = view.learner
    if learner.alarm is not None and learner.wall_ms:
        overrun_pct = 100.0 * (learner.accounted_ms or 0.0) / learner.wall_ms
        text = f"{glyphs.alarm} accounted {overrun_pct:.1f}% of Iter Wall"
        lines.append(((text, "bad strong"),))
    return lines


def timing_lines(rows: Sequence[TimingRow], width: int, glyphs: Glyphs) -> list[Line]:
    """Label, milliseconds, percent and, where there is room, a bar."""
    label_width = min(MAX_LABEL_WIDTH, max(width - VALUE_WIDTH, MIN_LABEL_WIDTH))
    bar_width = width - label_width - VALUE_WIDTH - 2
    if bar_width < MIN_BAR_WIDTH:
        bar_width = 0
    bar_width = min(bar_width, MAX_BAR_WIDTH)
    return [_row(row, label_width, bar_width, glyphs) for row in rows]


def _row(row: TimingRow, label_width: int, bar_width: int, glyphs: Glyphs) -> Line:
    if row.tree == "none":
        style = "strong" if row.total else "label"
        label: Line = ((fit(row.label, label_width, glyphs), style),)
    else:
        mark = glyphs.tree_last if row.tree == "last" else glyphs.tree_child
        text = right(f"{row.label} ", label_width - len(mark) - 1)
        label = ((fit(text, label_width - len(mark) - 1, glyphs), "child"), (f"{mark} ", "child"))
    ms = right(ABSENT, 7) + "   " if row.ms is None else f"{row.ms:7.1f} ms"
    pct = "      " if row.pct is None else f"{row.pct:5.0f}%"
    line: Line = (*label, (ms, row.style), (pct, "label" if row.tree == "none" else "child"))
    if bar_width and row.pct is not None and not row.total:
        kind = "bar good" if row.style == "good" else "bar"
        line = (*line, ("  ", "value"), (bar(row.pct / 100.0, bar_width, glyphs), kind))
    return line


def _heading(title: str, source: LearnerView | CollectorView) -> Line:
    mark = stall_mark(source)
    return ((title, "group"), *((("  " + mark, "bad strong"),) if mark else ()))
