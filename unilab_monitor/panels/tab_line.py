"""The top line of a job with RL traces: the timing view and the pages, by their keys."""

from unilab_monitor.line import Line
from unilab_monitor.panels.line_panel import LinePanel
from unilab_monitor.view import View

TIMING_TAB = "0 Timing"
PAGE_TABS = ("1 Progress", "2 Sample Flow", "3 Trace", "4 Trajectory", "5 Data Health")


class TabLine(LinePanel):
    """Not shown for a job without traces."""

    def lines(self, view: View, width: int) -> list[Line]:
        """One line; the timing view is the one that has it."""
        del view, width
        line: Line = ((TIMING_TAB, "title"),)
        for label in PAGE_TABS:
            line = (*line, ("  ", "value"), (label, "label"))
        return [line]
