"""The application: tiers, resize, keys. Views are posted by hand; nothing is attached."""

import asyncio

import pytest
from synthetic_job import SECOND, collector, fold, iteration, run_info

from unilab_monitor.app import MonitorApp
from unilab_monitor.glyphs import ASCII, UNICODE
from unilab_monitor.messages import ViewReady
from unilab_monitor.panels.footer import Footer
from unilab_monitor.view import EndView

T = 100 * SECOND


def view_of(**batch):
    return fold(
        learner=[run_info(), iteration(T, 412)],
        collector=[collector(T, 412)],
        now_ns=T,
        **batch,
    )


def screen_text(app):
    """What a terminal would show, row by row."""
    return [
        "".join(segment.text for segment in strip)
        for strip in app.screen._compositor.render_strips()
    ]


def with_app(test, *, size, glyphs=UNICODE, **options):
    async def go():
        app = MonitorApp(glyphs, **options)
        async with app.run_test(size=size) as pilot:
            await show(pilot, view_of())
            await test(app, pilot)
        return app

    return asyncio.run(go())


async def show(pilot, view):
    pilot.app.post_message(ViewReady(view))
    for _ in range(4):  # heights settle over a few rounds of layout
        await pilot.pause()


def test_below_96_columns_everything_is_stacked_with_one_timing_column():
    async def test(app, pilot):
        text = "\n".join(screen_text(app))
        assert "╭─ Timing ─" in text
        assert "╭─ Learner ─" not in text
        assert "╭─ System ─" not in text
        assert "│ Learner (Iter Wall)" in text
        assert text.index("Metrics") < text.index("Rewards") < text.index("Timing")
        assert "Buffer 26,368 │ Timeout Rate 2.0%" in text

    with_app(test, size=(95, 70))


def test_from_96_columns_learner_and_collector_stand_side_by_side():
    async def test(app, pilot):
        rows = screen_text(app)
        assert any("─ Metrics ─" in row and "─ Rewards ─" in row for row in rows)
        assert any("─ Learner ─" in row and "─ Collector ─" in row for row in rows)
        text = "\n".join(rows)
        assert "─ System ─" not in text
        assert "Buffer 26,368 │ Timeout Rate 2.0% │ Envs 64 │ Batch/Rank 1,024" in text

    for width in (96, 119):
        with_app(test, size=(width, 50))


def test_from_120_columns_there_are_three_columns():
    async def test(app, pilot):
        rows = screen_text(app)
        assert any(
            "─ Learner (Iter Wall) ─" in row
            and "─ Collector (own clock) ─" in row
            and "─ System ─" in row
            for row in rows
        )
        assert not any("Buffer 26,368 │" in row for row in rows)

    for width in (120, 160):
        with_app(test, size=(width, 50))


def test_every_row_is_exactly_as_wide_as_the_screen():
    async def test(app, pilot):
        assert {len(row) for row in screen_text(app)} == {app.size.width}

    for width in (60, 80, 100, 131, 140, 200):
        with_app(test, size=(width, 50))


def test_a_resize_changes_the_tier_and_back():
    async def test(app, pilot):
        wide = screen_text(app)
        await pilot.resize_terminal(80, 70)
        await show(pilot, view_of())
        assert any("─ Timing ─" in row for row in screen_text(app))
        await pilot.resize_terminal(140, 50)
        await show(pilot, view_of())
        assert screen_text(app) == wide

    with_app(test, size=(140, 50))


@pytest.mark.parametrize("size", [(1, 1), (5, 2), (20, 5), (300, 100)])
def test_odd_sizes_do_not_crash(size):
    async def test(app, pilot):
        await pilot.resize_terminal(*size)
        await show(pilot, view_of())

    assert with_app(test, size=size).return_code in (None, 0)  # a crash is 1


def test_cards_of_one_row_have_one_height():
    async def test(app, pilot):
        heights = {
            name: app.query_one(name).size.height
            for name in ("#metrics", "#rewards", "#learner", "#collector", "#system")
        }
        assert heights["#metrics"] == heights["#rewards"]
        assert heights["#learner"] == heights["#collector"] == heights["#system"]

    with_app(test, size=(140, 50))


def test_a_row_that_disappears_does_not_move_what_is_below():
    quiet = {**collector(T, 1).timing, "Perf/collector_inference_request_ms": 0.0}

    async def test(app, pilot):
        before = app.query_one("#status").region.y
        view = fold(
            learner=[run_info(), iteration(T, 413)],
            collector=[collector(T, 413, timing=quiet)],
            now_ns=T,
        )
        await show(pilot, view)
        assert "Inference Request" not in "\n".join(screen_text(app))
        assert app.query_one("#status").region.y == before

    with_app(test, size=(140, 60))


def test_only_changed_lines_are_repainted():
    async def test(app, pilot):
        panel = app.query_one("#metrics")
        strips = list(panel._strips)
        metrics = {**iteration(T, 1).metrics, "Loss/critic": 7.0}
        view = fold(learner=[run_info(), iteration(T, 412, metrics=metrics)], now_ns=T)
        await show(pilot, view)
        changed = [y for y, strip in enumerate(panel._strips) if strip is not strips[y]]
        assert len(changed) == 1
        assert "7.000" in panel._strips[changed[0]].text

    with_app(test, size=(140, 50))


def test_q_leaves_with_exit_code_0():
    async def test(app, pilot):
        await pilot.press("q")

    app = with_app(test, size=(100, 40))
    assert app.return_code == 0
    assert not app.is_running


def test_ctrl_c_in_an_attached_monitor_just_leaves():
    async def test(app, pilot):
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert not app.is_running or app._exit

    assert with_app(test, size=(100, 40)).return_code == 0


def test_ctrl_c_in_the_panel_asks_three_times_and_says_what_each_means():
    requests = []

    async def test(app, pilot):
        footer = app.query_one(Footer)
        for wanted in ("saving", "without saving", "at once", "at once"):
            await pilot.press("ctrl+c")
            await pilot.pause()
            assert wanted in footer.notice.partition(".")[0]
            assert footer.notice in screen_text(app)[-1]
        assert app.is_running

    with_app(test, size=(120, 40), request_stop=lambda: requests.append(1))
    assert len(requests) == 4


def test_a_request_that_could_not_be_sent_is_shown():
    async def test(app, pilot):
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert "The launcher has ended already" in screen_text(app)[-1]

    with_app(test, size=(100, 40), request_stop=lambda: "The launcher has ended already")


def test_the_panel_leaves_when_the_job_has_ended_and_a_monitor_stays():
    ended = view_of(end=EndView(reason="completed", exit_code=0))

    async def leaves(app, pilot):
        app.post_message(ViewReady(ended))
        await pilot.pause()
        assert app._exit

    async def stays(app, pilot):
        await show(pilot, ended)
        assert app.is_running
        assert "● ended" in "\n".join(screen_text(app))
        assert "completed" in "\n".join(screen_text(app))

    with_app(leaves, size=(100, 40), leave_when_ended=True)
    with_app(stays, size=(100, 40))


def test_arrow_keys_scroll_the_cards_on_a_low_screen():
    async def test(app, pilot):
        body = app.query_one("#body")
        assert body.max_scroll_y > 0
        await pilot.press("down", "down")
        await pilot.pause()
        assert body.scroll_y == 2
        await pilot.press("home")
        await pilot.pause()
        assert body.scroll_y == 0

    with_app(test, size=(80, 24))


def test_an_ascii_console_gets_ascii_only():
    async def test(app, pilot):
        text = "".join(screen_text(app))
        assert text.isascii()
        assert "+- Metrics -" in text
        assert "Backend Step -+" in text

    with_app(test, size=(140, 50), glyphs=ASCII)
    with_app(test, size=(100, 50), glyphs=ASCII)


def test_before_the_first_record_the_screen_says_so():
    async def go():
        app = MonitorApp(UNICODE)
        async with app.run_test(size=(100, 40)) as pilot:
            await show(pilot, fold(attached=False, now_ns=T))
            text = "\n".join(screen_text(app))
            assert "● starting" in text
            assert "no update yet" in text

    asyncio.run(go())


def test_no_colour_draws_without_colours(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    async def test(app, pilot):
        styles = {segment.style for strip in app.query_one("#metrics")._strips for segment in strip}
        assert all(style.color is None and style.bgcolor is None for style in styles)

    with_app(test, size=(100, 40))
