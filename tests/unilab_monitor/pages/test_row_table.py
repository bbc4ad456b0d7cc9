"""The table draws what is in sight and what has changed, and keeps its cursor."""

import asyncio

import pytest
from rich.text import Text
from textual.app import App

from unilab_monitor.pages.row_table import RowTable
from unilab_monitor.pages.strokes import cell, number


class Drawing:
    """Draws (name, number) and notes which names it drew."""

    def __init__(self):
        self.names = []

    def __call__(self, item):
        name, value = item
        self.names.append(name)
        return (cell(name), number(str(value)))

    def take(self):
        names, self.names = self.names, []
        return names


class TableApp(App):
    def __init__(self, max_rows=8):
        super().__init__()
        self.table = RowTable(("name", "value"), max_rows=max_rows, id="table")
        self.told = []

    def compose(self):
        yield self.table

    def on_row_table_highlighted(self, event):
        self.told.append(("highlighted", event.key))

    def on_row_table_selected(self, event):
        self.told.append(("selected", event.key))


def rows(*names, value=0):
    return [(name, (name, value)) for name in names]


def many(count, first=0):
    return rows(*(f"row-{at:04d}" for at in range(first, first + count)))


def session(test, size=(80, 20), max_rows=8):
    async def go():
        app = TableApp(max_rows)
        async with app.run_test(size=size) as pilot:
            app.table.take_focus()
            await test(app, app.table, pilot)

    asyncio.run(go())


def lines(app):
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


def test_only_rows_in_sight_are_drawn():
    async def test(app, table, pilot):
        draw = Drawing()
        table.fill(many(5_000), draw)
        await pilot.pause()
        assert set(draw.take()) == {f"row-{at:04d}" for at in range(8)}
        await pilot.press("end")
        await pilot.pause()
        assert set(draw.take()) == {f"row-{at:04d}" for at in range(4992, 5000)}
        assert lines(app)[8].split()[:1] == ["row-4999"]
        assert table.size.height == 9

    session(test)


def test_equal_items_are_not_drawn_again_and_one_change_draws_one_row():
    async def test(app, table, pilot):
        draw = Drawing()
        table.fill(rows("a", "b", "c"), draw)
        await pilot.pause()
        draw.take()
        table.fill(rows("a", "b", "c"), draw)
        await pilot.pause()
        assert draw.take() == []
        changed = rows("a", "b", "c")
        changed[1] = ("b", ("b", 7))
        refreshed = []
        refresh = table.refresh
        table.refresh = lambda *regions, **kinds: (
            refreshed.extend(regions) or refresh(*regions, **kinds)
        )
        table.fill(changed, draw)
        assert [(region.y, region.height) for region in refreshed] == [(2, 1)]
        await pilot.pause()
        assert draw.take() == ["b"]
        assert lines(app)[2].split() == ["b", "7"]

    session(test)


def test_the_cursor_stays_on_its_key_and_goes_to_the_top_when_that_is_gone():
    async def test(app, table, pilot):
        draw = Drawing()
        table.fill(rows("a", "b", "c"), draw)
        await pilot.press("down")
        assert (table.cursor_row, table.selected_key()) == (1, "b")
        table.fill(rows("new", "a", "b", "c"), draw)
        assert (table.cursor_row, table.selected_key()) == (2, "b")
        table.fill(rows("c", "d"), draw)
        assert (table.cursor_row, table.selected_key()) == (0, "c")
        table.fill((), draw)
        assert (table.cursor_row, table.selected_key()) == (0, None)
        await pilot.press("enter", "down", "pagedown", "end")
        await pilot.pause()
        assert [key for kind, key in app.told if kind == "highlighted"] == ["a", "b", "c"]
        assert not [key for kind, key in app.told if kind == "selected"]
        assert "c" not in "".join(lines(app)[1:])

    session(test)


def test_keys_move_by_rows_and_pages_and_keep_the_cursor_in_sight():
    async def test(app, table, pilot):
        table.fill(many(30), Drawing())
        await pilot.pause()
        places = []
        for key in ("down", "pagedown", "pagedown", "end", "down", "up", "pageup", "home", "up"):
            await pilot.press(key)
            await pilot.pause()
            places.append(table.cursor_row)
            top = round(table.scroll_y)
            assert top <= table.cursor_row < top + 8
        assert places == [1, 8, 15, 29, 29, 28, 21, 0, 0]
        await pilot.press("down", "enter")
        await pilot.pause()
        assert app.told[-1] == ("selected", "row-0001")

    session(test)


def test_a_click_moves_the_cursor_and_a_second_one_chooses():
    async def test(app, table, pilot):
        table.fill(rows("a", "b", "c"), Drawing())
        await pilot.pause()
        await pilot.click(table, offset=(2, 3))
        assert table.selected_key() == "c"
        assert ("selected", "c") not in app.told
        await pilot.click(table, offset=(2, 3))
        await pilot.pause()
        assert app.told[-1] == ("selected", "c")
        await pilot.click(table, offset=(2, 0))  # the header
        assert table.selected_key() == "c"

    session(test)


def test_the_mouse_wheel_scrolls_without_moving_the_cursor():
    async def test(app, table, pilot):
        table.fill(many(30), Drawing())
        await pilot.pause()
        table.scroll_to(y=5, animate=False)
        await pilot.pause()
        assert table.cursor_row == 0
        assert lines(app)[0].split() == ["name", "value"]
        assert lines(app)[1].split()[0] == "row-0005"

    session(test)


def test_columns_grow_with_what_comes_into_sight_and_numbers_stay_right_aligned():
    async def test(app, table, pilot):
        table.fill([*many(20), ("long", ("a much longer name", 1_234_567_890))], Drawing())
        await pilot.pause()
        narrow = lines(app)[1].index("0", 9)
        await pilot.press("end")
        await pilot.pause()
        await pilot.pause()
        shown = lines(app)
        assert "a much longer name  1234567890" in shown[8]
        (place,) = {line.index("0", 9) for line in shown[1:8]}
        assert place > narrow

    session(test)


@pytest.mark.parametrize("widths", [(80, 160, 80), (160, 80, 120)])
def test_rows_are_whole_at_every_width(widths):
    async def test(app, table, pilot):
        table.fill([(f"k{at}", (f"name {at} " + "x" * 30, at)) for at in range(20)], Drawing())
        for width in widths:
            await pilot.resize_terminal(width, 20)
            await pilot.pause()
            await pilot.pause()
            shown = lines(app)
            assert shown[0].split() == ["name", "value"]
            for at in range(8):
                assert shown[1 + at].split()[:2] == ["name", str(at)]
                assert shown[1 + at].split()[3] == str(at)

    session(test)


def test_rows_wider_than_the_terminal_scroll_sideways():
    async def test(app, table, pilot):
        table.fill([("k", ("start" + "." * 100 + "end", 5))], Drawing())
        await pilot.pause()
        await pilot.pause()
        assert "start" in lines(app)[1]
        assert "end" not in lines(app)[1]
        table.scroll_to(x=table.max_scroll_x, animate=False)
        await pilot.pause()
        assert lines(app)[1].split() == ["." * (lines(app)[1].count(".")) + "end", "5"]

    session(test)


def test_markup_is_text_and_every_cell_keeps_its_style():
    async def test(app, table, pilot):
        def draw(item):
            return (cell(item, "warn"), Text("ab", spans=[]))

        table.fill([("k", "[bold]x[/]"), ("other", "y")], draw)
        await pilot.press("down")  # the cursor has colours of its own
        await pilot.pause()
        assert "[bold]x[/]" in lines(app)[1]
        strip = app.screen._compositor.render_strips()[1]
        (own,) = [segment for segment in strip if "[bold]" in segment.text]
        assert own.style.color.name == "#e3bd6f"

    session(test)


def test_rows_that_come_and_go_beyond_the_height_need_no_layout():
    async def test(app, table, pilot):
        draw = Drawing()
        table.fill(many(30), draw)
        await pilot.pause()
        await pilot.pause()
        table.fill(many(31), draw)
        assert not table._layout_required
        assert table.virtual_size.height == 32
        table.fill(many(5), draw)
        await pilot.pause()
        assert table.size.height == 6

    session(test)
