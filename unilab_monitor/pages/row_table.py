"""A table of rows with a cursor, which is filled again and again and repaints only what changed.

A row is a key and an item. Only rows in sight are drawn: their items become cells, the cells one
strip, and the strip is kept as long as the item is equal. A layout happens only when the table
needs another height. Columns grow with what was in sight; they shrink only at another width.

    fill(rows, draw)  ->  cells of changed rows in sight  ->  strips  ->  regions that differ
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar, cast

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Click, Leave, MouseMove
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from unilab_monitor.pages.strokes import style_of
from unilab_monitor.strip_pieces import joined, styled

Cells = tuple[Text, ...]
Item = TypeVar("Item")
HEADER_ROWS = 1
GAP = 1
"""Blank cells on each side of a column."""


@dataclass(slots=True)
class _Drawn:
    """A row as it was drawn last."""

    item: object
    cells: Cells
    strip: Strip | None = None
    under_cursor: bool = False
    under_mouse: bool = False


class RowTable(ScrollView, can_focus=True):
    """Rows with a cursor over whole rows; the cursor stays on its key."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "row-table--header",
        "row-table--cursor",
        "row-table--hover",
    }
    DEFAULT_CSS = """
    RowTable {
        background: $surface; color: $foreground; height: auto; overflow: auto auto;
        & > .row-table--header { background: $panel; color: $foreground; }
        & > .row-table--cursor {
            background: $block-cursor-blurred-background;
            color: $block-cursor-blurred-foreground;
            text-style: $block-cursor-blurred-text-style;
        }
        & > .row-table--hover { background: $block-hover-background; }
        &:focus {
            background-tint: $foreground 5%;
            & > .row-table--header { background-tint: $foreground 5%; }
            & > .row-table--cursor {
                background: $block-cursor-background;
                color: $block-cursor-foreground;
                text-style: $block-cursor-text-style;
            }
        }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "Select", show=False),
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,ctrl+home", "first", "First row", show=False),
        Binding("end,ctrl+end", "last", "Last row", show=False),
        Binding("left", "scroll_left", "Left", show=False),
        Binding("right", "scroll_right", "Right", show=False),
    ]

    class Highlighted(Message):
        """The cursor is on another row."""

        def __init__(self, table: RowTable, key: str) -> None:
            self.table = table
            self.key = key
            super().__init__()

    class Selected(Message):
        """Enter, or a click on the row under the cursor."""

        def __init__(self, table: RowTable, key: str) -> None:
            self.table = table
            self.key = key
            super().__init__()

    def __init__(self, columns: Sequence[str], *, max_rows: int, id: str) -> None:
        super().__init__(id=id)
        self._labels = columns
        self._widths = [len(label) for label in columns]
        self._max_rows = max_rows
        self._keys: list[str] = []
        self._items: list[object] = []
        self._draw: Callable[[object], Cells] = _nothing
        self._cursor = 0
        self._hover = -1
        self._told: str | None = None
        self._drawn: dict[int, _Drawn] = {}
        self._header: Strip | None = None
        self._base: Style | None = None
        self._right: list[bool] = [False] * len(columns)
        self._drawn_width = 0
        self._end = 0
        """Line behind the last row that was in sight."""

    @property
    def row_count(self) -> int:
        """Rows, in sight or not."""
        return len(self._keys)

    @property
    def cursor_row(self) -> int:
        """Place of the row under the cursor; 0 in an empty table."""
        return self._cursor

    def cells_at(self, row: int) -> Cells:
        """The cells of a row, drawn if need be."""
        return self._row(row).cells

    def fill(self, rows: Sequence[tuple[str, Item]], draw: Callable[[Item], Cells]) -> None:
        """Show these rows; `draw` must depend on nothing but the item."""
        key, size = self.selected_key(), len(self._keys)
        self._keys = [name for name, _ in rows]
        self._items = [item for _, item in rows]
        self._draw = cast("Callable[[object], Cells]", draw)
        if not self._on(self._cursor, key):
            self._cursor = self._keys.index(key) if key in self._keys else 0
            if key is not None and key not in self._keys:
                self.scroll_to(y=0, animate=False)
        for row in [row for row in self._drawn if row >= len(self._keys)]:
            del self._drawn[row]
        if size != len(self._keys):
            self._resized(needs_layout=min(size, self._max_rows) != self._needed_rows())
        self._repaint()
        self._tell()

    def take_focus(self) -> None:
        """Receive the next key; `focus` would do so only after the messages that wait."""
        self.screen.set_focus(self)

    def select_key(self, key: str) -> None:
        """Put the cursor on a row."""
        if key in self._keys:
            self._go(self._keys.index(key))

    def selected_key(self) -> str | None:
        """Key under the cursor."""
        return self._keys[self._cursor] if self._cursor < len(self._keys) else None

    # Textual

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Header, rows up to the limit, and the scroll bar where the columns need one."""
        del container, viewport
        return HEADER_ROWS + self._needed_rows() + (self._total_width() > width)

    def on_mount(self) -> None:
        """Nothing to scroll yet."""
        self._resized()

    def on_resize(self) -> None:
        """Columns are measured anew at another width."""
        if self.size.width != self._drawn_width:
            self._drawn_width = self.size.width
            self._widths = [len(label) for label in self._labels]
            self._drawn.clear()
            self._forget()
            self._resized()

    def notify_style_update(self) -> None:
        """Other colours: the focus has come or gone, or the theme is another."""
        super().notify_style_update()
        self._forget()
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Rows that leave the sight are forgotten."""
        super().watch_scroll_y(old_value, new_value)
        sight = self._sight()
        for row in [row for row in self._drawn if row not in sight]:
            del self._drawn[row]

    def render_lines(self, crop: Region) -> list[Strip]:
        """The strips of a region, for Textual's compositor."""
        first = round(self.scroll_y) - HEADER_ROWS
        places = [(y, first + y) for y in range(crop.y, crop.bottom)]
        wide = self._total_width()
        for y, row in places:
            if y >= HEADER_ROWS and row < len(self._keys):
                self._row(row)
        if self._total_width() != wide:
            self.call_later(self._widened)
        width = max(self._total_width(), crop.right + round(self.scroll_x))
        left = round(self.scroll_x) + crop.x
        return [
            self._strip(row if y >= HEADER_ROWS else -1, width).crop(left, left + crop.width)
            for y, row in places
        ]

    def action_move(self, by: int) -> None:
        """Move the cursor by rows."""
        self._go(self._cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by what is in sight."""
        self._go(self._cursor + by * max(self._num_visible() - 1, 1))

    def action_first(self) -> None:
        """To the first row."""
        self._go(0)

    def action_last(self) -> None:
        """To the last row."""
        self._go(len(self._keys) - 1)

    def action_select(self) -> None:
        """Tell that the row under the cursor was chosen."""
        key = self.selected_key()
        if key is not None:
            self.post_message(self.Selected(self, key))

    def on_click(self, event: Click) -> None:
        """The cursor goes where one clicks; on the row under the cursor it chooses."""
        row = self._row_at(event.y)
        if row is None:
            return
        event.stop()
        if row == self._cursor:
            self.action_select()
        else:
            self._go(row)

    def on_mouse_move(self, event: MouseMove) -> None:
        """Mark the row under the mouse."""
        row = self._row_at(event.y)
        self._point_at(-1 if row is None else row)

    def on_leave(self, event: Leave) -> None:
        """The mouse is elsewhere."""
        del event
        self._point_at(-1)

    # Rows in sight

    def _on(self, row: int, key: str | None) -> bool:
        return row < len(self._keys) and self._keys[row] == key

    def _needed_rows(self) -> int:
        return min(len(self._keys), self._max_rows)

    def _num_visible(self) -> int:
        return max(self.size.height - HEADER_ROWS, 0)

    def _sight(self) -> range:
        first = round(self.scroll_y)
        return range(first, min(first + self._num_visible(), len(self._keys)))

    def _row_at(self, y: int) -> int | None:
        row = round(self.scroll_y) + y - HEADER_ROWS
        return row if y >= HEADER_ROWS and row < len(self._keys) else None

    def _go(self, row: int) -> None:
        row = min(max(row, 0), max(len(self._keys) - 1, 0))
        if row != self._cursor:
            self._cursor = row
            self._repaint()
        visible = self._num_visible()
        if visible and row < self.scroll_target_y:
            self.scroll_to(y=row, animate=False)
        elif visible and row >= self.scroll_target_y + visible:
            self.scroll_to(y=row - visible + 1, animate=False)
        self._tell()

    def _point_at(self, row: int) -> None:
        if row != self._hover:
            self._hover = row
            self._repaint()

    def _tell(self) -> None:
        key = self.selected_key()
        if key is not None and key != self._told:
            self.post_message(self.Highlighted(self, key))
        self._told = key

    def _resized(self, *, needs_layout: bool = True) -> None:
        """Rows or columns need another room; no layout where only the scroll bar tells."""
        size = Size(self._total_width(), HEADER_ROWS + len(self._keys))
        stays = self.show_vertical_scrollbar and size.height > self.size.height
        if needs_layout or size.width != self.virtual_size.width or not stays:
            self.virtual_size = size
            return
        # Read from the class, a reactive is its descriptor.
        self.set_reactive(ScrollView.virtual_size, size)  # pyright: ignore[reportArgumentType]
        self.vertical_scrollbar.window_virtual_size = size.height
        if self.scroll_y > self.max_scroll_y:
            self.scroll_to(y=self.max_scroll_y, animate=False)

    def _widened(self) -> None:
        self._resized()
        self.refresh()

    def _forget(self) -> None:
        self._header = self._base = None
        for drawn in self._drawn.values():
            drawn.strip = None

    # Drawing

    def _repaint(self) -> None:
        """Mark the lines that differ from what was drawn last."""
        first, wide = round(self.scroll_y), self._total_width()
        for row in self._sight():
            self._row(row)
        if self._total_width() != wide:
            self._widened()
            return
        sight = self._sight()
        lines = [row - first + HEADER_ROWS for row in sight if self._drawn[row].strip is None]
        end, before = len(sight) + HEADER_ROWS, self._end
        self._end = end
        lines += range(end, before)  # rows that are gone
        if lines:
            self.refresh(*joined(lines, self.size.width))

    def _row(self, row: int) -> _Drawn:
        """A row with its cells; without a strip if it looks different than before."""
        item, drawn = self._items[row], self._drawn.get(row)
        cursor, mouse = row == self._cursor, row == self._hover
        if drawn is None or drawn.item != item:
            cells = self._draw(item)
            if drawn is None or drawn.cells != cells:
                self._measure(cells)
                drawn = self._drawn[row] = _Drawn(item, cells)
            drawn.item = item
        if (drawn.under_cursor, drawn.under_mouse) != (cursor, mouse):
            drawn.under_cursor, drawn.under_mouse, drawn.strip = cursor, mouse, None
        return drawn

    def _measure(self, cells: Cells) -> None:
        for column, one in enumerate(cells):
            right = one.justify == "right"
            if one.cell_len > self._widths[column] or right != self._right[column]:
                self._widths[column] = max(one.cell_len, self._widths[column])
                self._right[column] = right
                self._forget()

    def _total_width(self) -> int:
        return sum(self._widths) + 2 * GAP * len(self._widths)

    def _strip(self, row: int, width: int) -> Strip:
        """Strip of a row, -1: the header; blank behind the last row."""
        if row < 0:
            if self._header is None or self._header.cell_length < width:
                style = self.get_component_rich_style("row-table--header")
                labels = tuple(Text(label, style_of("label"), end="") for label in self._labels)
                self._header = self._line(labels, style, None, width)
            return self._header
        if row >= len(self._keys):
            return Strip([Segment(" " * width, self._ground())], width)
        drawn = self._row(row)
        if drawn.strip is None or drawn.strip.cell_length < width:
            style, over = self._ground(), None
            if drawn.under_cursor:
                style = self.get_component_rich_style("row-table--cursor")
                over = Style.from_color(style.color, style.bgcolor)
            elif drawn.under_mouse:
                style = style + self.get_component_rich_style("row-table--hover", partial=True)
            drawn.strip = self._line(drawn.cells, style, over, width)
        return drawn.strip

    def _ground(self) -> Style:
        if self._base is None:
            self._base = self.rich_style  # walks up all the parents
        return self._base

    def _line(self, cells: Cells, style: Style, over: Style | None, width: int) -> Strip:
        """Cells side by side; `over` lies on the colours of the cells."""
        segments, blanks = [], GAP
        for one, size, right in zip(cells, self._widths, self._right, strict=True):
            missing = size - one.cell_len
            blanks += missing if right else 0
            segments.append(Segment(" " * blanks, style))
            for text, own in styled(one, style, self.app.console):
                segments.append(Segment(text, own + over if over else own))
            blanks = 2 * GAP + (0 if right else missing)
        used = sum(segment.cell_length for segment in segments)
        segments.append(Segment(" " * max(width - used, 0), style))
        return Strip(segments, max(width, used))


def _nothing(item: object) -> Cells:
    del item
    return ()
