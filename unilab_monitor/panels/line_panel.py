"""The widget under every panel: a block of lines that repaints only what has changed.

A panel is a pure function from a view to lines plus this widget. The lines go to the screen through
Textual's line API: no renderable is built, no layout happens unless the number of lines grows, and
of a redraw only the changed lines reach the terminal.
"""

from rich.segment import Segment
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from unilab_monitor.glyphs import Glyphs
from unilab_monitor.line import EMPTY, Line, clip
from unilab_monitor.messages import LinesChanged
from unilab_monitor.palette import STYLES
from unilab_monitor.view import View


class LinePanel(Widget):
    """Shows `lines(view, width, glyphs)`; subclasses say what the lines are.

    Attributes:
        view: the picture to show; assigning a new one redraws.
    """

    view: reactive[View | None] = reactive(None, repaint=False)

    can_focus = False

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.glyphs = glyphs
        self._lines: list[Line] = []
        self._strips: list[Strip] = []
        self._width = 0

    def lines(self, view: View, width: int) -> list[Line]:
        """The lines for a content width of `width` cells."""
        raise NotImplementedError

    def watch_view(self) -> None:
        """Redraw from the new view."""
        self.redraw()

    @property
    def needed_height(self) -> int:
        """Rows that the lines take, border included."""
        return len(self._lines) + self.gutter.height

    def on_resize(self) -> None:
        """Start over at another width: what fitted the old one says nothing about this one."""
        if self.content_size.width != self._width:
            self._width = self.content_size.width
            self._lines = []
            self._strips = []
            self.redraw()

    def redraw(self) -> None:
        """Compute the lines again and repaint those that differ."""
        width = self.content_size.width
        if self.view is None or width <= 0 or not self.display:
            return
        lines = [clip(line, width, self.glyphs) for line in self.lines(self.view, width)]
        # A block never shrinks while the width stays: rows that come and go must not move others.
        lines += [EMPTY] * (len(self._lines) - len(lines))
        previous, self._lines = self._lines, lines
        if len(lines) != len(previous):
            self._strips = [_strip(line) for line in lines]
            self.refresh()
            self.post_message(LinesChanged())
            return
        for y, line in enumerate(lines):
            if line != previous[y]:
                self._strips[y] = _strip(line)
                self.refresh(Region(0, y, width, 1))

    def render_line(self, y: int) -> Strip:
        """One line of the block, for Textual's compositor."""
        width = self.content_size.width
        if y >= len(self._strips):
            return Strip.blank(width, self.rich_style)
        return self._strips[y].extend_cell_length(width).apply_style(self.rich_style)


def _strip(line: Line) -> Strip:
    return Strip([Segment(text, STYLES[style]) for text, style in line])
