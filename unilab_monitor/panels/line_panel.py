"""The widget under every panel: a block of lines that repaints only what has changed.

A panel is a pure function from a view to lines. A line that differs from the one before becomes a
finished strip, and the compositor takes the strips as they are: no renderable is built, no style is
resolved while drawing, and of a redraw only the changed lines reach the terminal. A layout happens
only when a panel needs more rows than before.
"""

from rich.segment import Segment
from textual.geometry import Region
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from unilab_monitor.glyphs import Glyphs
from unilab_monitor.line import EMPTY, Line, clip, pad
from unilab_monitor.messages import LinesChanged
from unilab_monitor.palette import Palette
from unilab_monitor.panels.frame import MARGIN, Frame, inside, lower_edge, upper_edge
from unilab_monitor.strip_pieces import joined
from unilab_monitor.view import View


class LinePanel(Widget):
    """Shows `lines(view, width)`, in a frame if `frame(view)` gives one; subclasses say what."""

    view: reactive[View | None] = reactive(None, repaint=False)
    """The picture to show; assigning a new one redraws."""

    GROUND = "ground"
    """Name of the background in the palette."""

    can_focus = False

    def __init__(self, glyphs: Glyphs, palette: Palette, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.glyphs = glyphs
        self.needed_height = 1
        """Rows that the lines take, frame included; never less than before at the same width."""
        self._styles_by_role = palette.on(self.GROUND)
        self._lines: list[Line] = []
        self._frame: Frame | None = None
        self._strips: list[Strip] = []
        self._drawn_size = (0, 0)

    def lines(self, view: View, width: int) -> list[Line]:
        """The lines, meant for `width` cells; longer ones are cut."""
        raise NotImplementedError

    def frame(self, view: View) -> Frame | None:
        """The frame, None for a panel without one."""
        del view
        return None

    def watch_view(self) -> None:
        """Redraw from the new view."""
        self.redraw()

    def on_resize(self) -> None:
        """Draw for the new size; at another width the old height says nothing."""
        if self.size.width != self._drawn_size[0]:
            self.needed_height = 1
        self.redraw()

    def redraw(self) -> None:
        """Compute the lines again and repaint those that differ."""
        view, (width, height) = self.view, self.size
        if view is None or width <= MARGIN or not self.display:
            return
        lines = self.lines(view, width - MARGIN)
        frame = self.frame(view)
        edges = 2 if frame else 0
        # Never fewer rows than before: what comes and goes must not move the panels below.
        if len(lines) + edges > self.needed_height:
            self.needed_height = len(lines) + edges
            self.post_message(LinesChanged())
        room = max(height - edges, 0)
        lines = lines[:room] + [EMPTY] * (room - len(lines))
        self._show(lines, frame, (width, height))

    def render_lines(self, crop: Region) -> list[Strip]:
        """The finished strips of a region, for Textual's compositor."""
        width = self.size.width
        strips = self._strips[crop.y : crop.bottom]
        strips += [self._strip(EMPTY, width)] * (crop.height - len(strips))
        if crop.x == 0 and crop.width == width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def _show(self, lines: list[Line], frame: Frame | None, size: tuple[int, int]) -> None:
        before, self._lines = self._lines, lines
        frame_before, self._frame = self._frame, frame
        width = size[0]
        style_before = frame_before.style if frame_before else None
        style = frame.style if frame else None
        everything = size != self._drawn_size or style != style_before
        self._drawn_size = size
        top = 1 if frame else 0
        if everything:
            self._strips = [self._strip(EMPTY, width)] * (len(lines) + 2 * top)
        changed = [y for y, line in enumerate(lines) if everything or line != before[y]]
        for y in changed:
            self._strips[y + top] = self._strip(self._row(lines[y], style, width), width)
        rows = [y + top for y in changed]
        if frame is not None and (everything or frame != frame_before):
            self._strips[0] = self._strip(upper_edge(frame, width, self.glyphs), width)
            self._strips[-1] = self._strip(lower_edge(frame, width, self.glyphs), width)
            rows += [0, len(self._strips) - 1]
        if everything:
            self.refresh()
        elif rows:
            self.refresh(*joined(rows, width))

    def _row(self, line: Line, frame_style: str | None, width: int) -> Line:
        if frame_style is not None:
            return inside(line, frame_style, width, self.glyphs)
        return (("  ", "value"), *pad(clip(line, width - MARGIN, self.glyphs), width - 2))

    def _strip(self, row: Line, width: int) -> Strip:
        styles = self._styles_by_role
        if not row:
            row = ((" " * width, "value"),)
        return Strip([Segment(text, styles[style]) for text, style in row], width)
