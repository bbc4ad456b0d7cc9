"""The mean return with trend, peak and course; the reward terms; what ended the episodes."""

from collections.abc import Mapping

from unilab_core.telemetry.plain import format_count
from unilab_monitor.glyphs import Glyphs
from unilab_monitor.line import (
    ABSENT,
    COLUMN_GAP,
    Line,
    columns,
    fit,
    flow,
    right,
    shown,
    sparkline,
    width_of,
)
from unilab_monitor.panels.frame import Frame
from unilab_monitor.panels.line_panel import LinePanel
from unilab_monitor.view import RewardView, View

SHORT_PEAK_BELOW = 96
VALUE_WIDTH = 9
NAME_WIDTH = 24


class Rewards(LinePanel):
    """The rewards card."""

    def lines(self, view: View, width: int) -> list[Line]:
        """Summary, course, terms, terminations."""
        short = self.screen.size.width < SHORT_PEAK_BELOW
        return rewards_lines(view, width, self.glyphs, peak_decimals=2 if short else 3)

    def frame(self, view: View) -> Frame:
        """The title."""
        del view
        return Frame(title=(("Rewards", "title"),))


def rewards_lines(view: View, width: int, glyphs: Glyphs, *, peak_decimals: int) -> list[Line]:
    """All lines of the card."""
    rewards = view.rewards
    lines = [_summary(rewards, width, glyphs, peak_decimals)]
    lines += _terms(rewards.terms, width, glyphs)
    if rewards.terminations:
        cells: list[Line] = [
            ((f"{shown(name)} ", "dim"), (format_count(total), "label"))
            for name, total in rewards.terminations.items()
        ]
        lines += flow(((("Terminations", "dim"),), *cells), width, ("  ", "value"))
    return lines


def _summary(rewards: RewardView, width: int, glyphs: Glyphs, peak_decimals: int) -> Line:
    """Figures on the left, the course in what is left of the line."""
    mean = ABSENT if rewards.mean is None else f"{rewards.mean:.3f}"
    marks = {"up": (glyphs.up, "good"), "down": (glyphs.down, "bad"), "flat": (glyphs.flat, "dim")}
    mark = marks[rewards.trend] if rewards.trend else (" ", "dim")
    line: Line = (("Mean ", "label"), (mean, "strong"), (" ", "value"), mark)
    if rewards.peak is not None:
        line = (*line, ("  peak ", "label"), (f"{rewards.peak:.{peak_decimals}f}", "value"))
    room = width - width_of(line) - 2
    course = sparkline(rewards.course, room, glyphs) if room >= 8 else ""
    return (*line, ("  ", "value"), (right(course, room), "spark")) if course else line


def _terms(terms: Mapping[str, float], width: int, glyphs: Glyphs) -> list[Line]:
    if not terms:
        return []
    names = {name: shown(name) for name in terms}
    name_width = min(max(len(name) for name in names.values()), NAME_WIDTH)
    full = name_width + 1 + VALUE_WIDTH
    count_ = 2 if width >= 2 * full + COLUMN_GAP and len(terms) > 3 else 1
    column_width = (width - COLUMN_GAP * (count_ - 1)) // count_
    name_width = min(name_width, max(column_width - 1 - VALUE_WIDTH, 4))
    lines: list[Line] = []
    for name, value in terms.items():
        style = "good" if value > 0 else "bad" if value < 0 else "dim"
        figure = right(f"{value:+.4f}", VALUE_WIDTH)
        lines.append(
            ((fit(names[name], name_width, glyphs), "label"), (" ", "value"), (figure, style))
        )
    return columns(lines, count=count_, width=width)
