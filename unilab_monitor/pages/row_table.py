"""A data table that is filled again and again without losing its cursor."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from unilab_monitor.pages.strokes import style_of

Row = tuple[str, tuple[Text, ...]]
"""(key, cells)."""


class RowTable(DataTable[Text]):
    """Rows with a cursor over whole rows; the cursor stays on its key."""

    DEFAULT_CSS = """
    RowTable { height: auto; max-height: 16; }
    RowTable > .datatable--header { text-style: none; }
    """

    def __init__(self, columns: Sequence[str], *, max_rows: int, id: str) -> None:
        super().__init__(cursor_type="row", zebra_stripes=False, id=id)
        self._labels = columns
        self._shown: tuple[Row, ...] | None = None
        self.styles.max_height = max_rows + 2

    def on_mount(self) -> None:
        """Columns are fixed."""
        for label in self._labels:
            self.add_column(Text(label, style_of("label")), key=label)

    def fill(self, rows: Sequence[Row]) -> None:
        """Show these rows; the same keys in the same order are changed in place."""
        wanted = tuple(rows)
        if wanted == self._shown:
            return
        old = self._shown or ()
        self._shown = wanted
        if [key for key, _ in wanted] == [key for key, _ in old]:
            for at, ((_, cells), (_, before)) in enumerate(zip(wanted, old, strict=True)):
                for column, (one, other) in enumerate(zip(cells, before, strict=True)):
                    if one != other:
                        # Widths only grow: measuring a column lays the whole page out again.
                        wider = one.cell_len > other.cell_len
                        self.update_cell_at(Coordinate(at, column), one, update_width=wider)
            return
        key, scroll = self.selected_key(old), self.scroll_y
        self.clear()
        for name, cells in wanted:
            self.add_row(*cells, key=name)
        keys = [name for name, _ in wanted]
        if key in keys:
            self.move_cursor(row=keys.index(key), animate=False)
            self.scroll_to(y=scroll, animate=False)

    def take_focus(self) -> None:
        """Receive the next key; `focus` would do so only after the messages that wait."""
        self.screen.set_focus(self)

    def select_key(self, key: str) -> None:
        """Put the cursor on a row."""
        keys = [name for name, _ in self._shown or ()]
        if key in keys:
            self.move_cursor(row=keys.index(key), animate=False)

    def selected_key(self, rows: Sequence[Row] | None = None) -> str | None:
        """Key under the cursor."""
        shown = self._shown if rows is None else rows
        if not shown or not 0 <= self.cursor_row < len(shown):
            return None
        return shown[self.cursor_row][0]
