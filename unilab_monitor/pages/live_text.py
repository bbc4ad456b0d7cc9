"""A text that changes all the time: only lines that differ are drawn, and it never gets shorter.

Each line becomes a strip that is kept as long as the line is equal. A layout happens only when the
text needs more lines than it ever did at this width: what comes and goes must not move the tables
below.
"""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from unilab_monitor.strip_pieces import joined, styled


class LiveText(Widget):
    """Shows a text; its lines are meant for the width, longer ones are wrapped."""

    ALLOW_SELECT = False

    def __init__(self, *, id: str, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.content = Text("", end="")
        """The text that is shown."""
        self._lines: list[Text] = []
        self._strips: list[Strip | None] = []
        self._width = 0
        self._height = 0
        self._base: Style | None = None

    def show(self, text: Text) -> None:
        """Show this text."""
        if text == self.content:
            return
        self.content = text
        if self._width:
            self._take(_lines(text, self._width, self))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as were ever needed at this width."""
        del container, viewport
        if width != self._width:
            self._width, self._height = width, 0
            self._lines, self._strips = [], []
            self._take(_lines(self.content, width, self))
        return self._height

    def notify_style_update(self) -> None:
        """Other colours."""
        super().notify_style_update()
        self._strips, self._base = [None] * len(self._lines), None
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The strips of a region, for Textual's compositor."""
        if self._base is None:
            self._base = self.rich_style  # walks up all the parents
        base = self._base
        strips = [self._strip(y, base) for y in range(crop.y, crop.bottom)]
        return [strip.crop_extend(crop.x, crop.right, base) for strip in strips]

    def _take(self, lines: list[Text]) -> None:
        before, strips = self._lines, self._strips
        self._lines = lines
        same = [y < len(before) and line == before[y] for y, line in enumerate(lines)]
        self._strips = [strips[y] if kept else None for y, kept in enumerate(same)]
        if len(lines) > self._height:
            self._height = len(lines)
            self.refresh(layout=True)
            return
        changed = [y for y, kept in enumerate(same) if not kept]
        changed += range(len(lines), len(before))
        if changed:
            self.refresh(*joined(changed, self.size.width))

    def _strip(self, y: int, base: Style) -> Strip:
        if y >= len(self._lines):
            return Strip([], 0)
        strip = self._strips[y]
        if strip is None:
            strip = self._strips[y] = Strip(
                [Segment(*piece) for piece in styled(self._lines[y], base, self.app.console)]
            )
        return strip


def _lines(text: Text, width: int, widget: Widget) -> list[Text]:
    lines = []
    for line in text.split("\n", allow_blank=True):
        line.end = ""
        if line.cell_len <= width:
            lines.append(line)
        else:
            lines += line.wrap(widget.app.console, width, no_wrap=False)
    return lines
