"""The text repaints lines that changed and never moves what is below it."""

import asyncio

from rich.text import Text
from textual.app import App

from unilab_monitor.pages.live_text import LiveText


class TextApp(App):
    CSS = "LiveText { height: auto; width: 1fr; }"

    def __init__(self):
        super().__init__()
        self.text = LiveText(id="text")

    def compose(self):
        yield self.text


def session(test, size=(40, 10)):
    async def go():
        app = TextApp()
        async with app.run_test(size=size) as pilot:
            await test(app, app.text, pilot)

    asyncio.run(go())


def lines(app):
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


def test_only_lines_that_differ_are_drawn_again():
    async def test(app, text, pilot):
        text.show(Text("one\ntwo\nthree"))
        await pilot.pause()
        regions = []
        refresh = text.refresh
        text.refresh = lambda *found, **kinds: regions.extend(found) or refresh(*found, **kinds)
        text.show(Text("one\n2\nthree"))
        await pilot.pause()
        assert [(region.y, region.height) for region in regions] == [(1, 1)]
        assert lines(app)[:3] == ["one", "2", "three"]

    session(test)


def test_it_keeps_its_height_until_the_width_is_another():
    async def test(app, text, pilot):
        text.show(Text("one\ntwo\nthree"))
        await pilot.pause()
        text.show(Text("one"))
        await pilot.pause()
        assert text.size.height == 3
        assert lines(app)[:3] == ["one", "", ""]
        text.show(Text("1\n2\n3\n4"))
        await pilot.pause()
        assert text.size.height == 4
        text.show(Text("one"))
        await pilot.resize_terminal(60, 10)
        await pilot.pause()
        assert text.size.height == 1

    session(test)


def test_long_lines_wrap_and_styles_stay():
    async def test(app, text, pilot):
        text.show(Text("word " * 12, "#123456", no_wrap=True).append("end", "#654321"))
        await pilot.pause()
        assert lines(app)[:2] == [
            "word word word word word word word word",
            "word word word word end",
        ]
        strips = app.screen._compositor.render_strips()
        styles = {s.style.color.name for s in strips[1] if s.text.strip() and s.style.color}
        assert styles == {"#123456", "#654321"}

    session(test)
