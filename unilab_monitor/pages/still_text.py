"""A text that is drawn only when it says something else than before."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static


class StillText(Static):
    """Equal text costs a comparison; text of the same shape a repaint, but no layout."""

    def show(self, text: Text) -> None:
        """Show this text."""
        before = self.content
        if not isinstance(before, Text):
            self.update(text)
        elif text != before:
            self.update(text, layout=self._shape(text) != self._shape(before))

    def _shape(self, text: Text) -> list[int]:
        """Rows that each line takes, as far as its length tells."""
        width = max(self.content_size.width, 1)
        return [max(-(-len(line) // width), 1) for line in text.plain.split("\n")]
