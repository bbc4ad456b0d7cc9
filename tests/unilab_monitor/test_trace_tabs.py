"""The pages about RL traces as tabs beside the timing view of a job."""

import asyncio
import time
from dataclasses import replace

import pytest
from synthetic_job import SECOND, collector, fold, iteration, run_info
from textual.widgets import Input, TabbedContent

from unilab_core.telemetry.rl_trace.demo_trace import generate
from unilab_monitor.app import MonitorApp
from unilab_monitor.glyphs import UNICODE
from unilab_monitor.messages import ViewReady
from unilab_monitor.pages.row_table import RowTable
from unilab_monitor.pages.trace_pages import TracePages
from unilab_monitor.pages.trace_screen import TraceScreen
from unilab_monitor.panels.ground import GroundScreen
from unilab_monitor.view import EndView

T = 100 * SECOND


@pytest.fixture
def demo(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = tmp_path / "run" / "rl_trace"
    start_ms = int(time.time() * 1000) - 120_000
    generate(root, num_events=8_000, num_shards=3, start_ms=start_ms, trajectories_per_step=128)
    return root


def view_of(root, number=412, **batch):
    view = fold(
        learner=[run_info(), iteration(T, number)],
        collector=[collector(T, number)],
        now_ns=T,
        **batch,
    )
    if root is None:
        return view
    times = str(root.parent / "progress.tsidx")
    return replace(view, facts=replace(view.facts, trace_root=str(root), trace_times=times))


def session(test, view, size=(120, 40), **options):
    async def go():
        app = MonitorApp(UNICODE, **options)
        async with app.run_test(size=size) as pilot:
            await show(app, pilot, view)
            await test(app, pilot)
        return app

    return asyncio.run(go())


async def show(app, pilot, view):
    app.post_message(ViewReady(view))
    for _ in range(4):
        await pilot.pause()


async def until(pilot, condition, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        await pilot.pause(0.05)


def screen_text(app):
    return [
        "".join(segment.text for segment in strip)
        for strip in app.screen._compositor.render_strips()
    ]


def page(app):
    return app.screen.query_one(TabbedContent).active


def rows(app, selector):
    return app.screen.query_one(selector, RowTable).row_count


def test_a_job_with_traces_has_tabs_and_keys_for_them(demo):
    async def test(app, pilot):
        top = screen_text(app)[0]
        assert top.split("  ")[1:3] == ["0 Timing", "1 Progress"]
        assert "5 Data Health" in top
        await pilot.press("2")
        await until(pilot, lambda: isinstance(app.screen, TraceScreen) and page(app) == "flow")
        await until(pilot, lambda: rows(app, "#flow-transitions") == 12)
        assert "0 Timing" in "\n".join(screen_text(app)[:2])
        await pilot.press("1")
        await until(pilot, lambda: page(app) == "progress" and rows(app, "#progress-steps") > 2)
        await pilot.press("0")
        await until(pilot, lambda: isinstance(app.screen, GroundScreen))
        assert "iteration 412/5,000" in "\n".join(screen_text(app))

    session(test, view_of(demo))


def test_the_timing_view_goes_on_behind_the_pages(demo):
    async def test(app, pilot):
        await pilot.press("1")
        await until(pilot, lambda: isinstance(app.screen, TraceScreen))
        await show(app, pilot, view_of(demo, number=500))
        await pilot.press("escape")  # nothing to go back to among the pages
        await until(pilot, lambda: "iteration 500/5,000" in "\n".join(screen_text(app)))

    session(test, view_of(demo))


def test_nobody_reads_the_directory_while_the_timing_view_is_shown(demo):
    async def test(app, pilot):
        await pilot.press("1")
        await until(pilot, lambda: isinstance(app.screen, TraceScreen))
        await until(pilot, lambda: rows(app, "#progress-steps") > 2)
        feed = app.screen.query_one(TracePages)._feed
        await pilot.press("0")
        await until(pilot, lambda: isinstance(app.screen, GroundScreen))
        assert not feed._going.is_set()
        await pilot.press("1")
        await until(pilot, feed._going.is_set)
        assert feed._thread.is_alive()

    session(test, view_of(demo))


def test_a_letter_in_the_filter_is_no_command(demo):
    async def test(app, pilot):
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.screen, TraceScreen) and page(app) == "trace")
        await pilot.press("g")
        await until(pilot, lambda: isinstance(app.focused, Input))
        await pilot.press("q", "0", "1")
        assert app.is_running
        assert app.focused.value == "q01"

    session(test, view_of(demo))


@pytest.mark.parametrize("key", list("12345"))
def test_a_job_without_traces_has_neither_tabs_nor_pages(key):
    async def test(app, pilot):
        assert "0 Timing" not in "\n".join(screen_text(app))
        await pilot.press(key, "0")
        assert isinstance(app.screen, GroundScreen)

    session(test, view_of(None))


@pytest.mark.parametrize("name", ["progress", "flow", "trace", "trajectory", "health"])
def test_pages_follow_the_terminal_from_80_to_160_columns_and_back(demo, name):
    async def test(app, pilot):
        await pilot.press(
            str(["progress", "flow", "trace", "trajectory", "health"].index(name) + 1)
        )
        await until(pilot, lambda: isinstance(app.screen, TraceScreen) and page(app) == name)
        for width in (80, 100, 160, 80):
            await pilot.resize_terminal(width, 40)
            await pilot.pause()
            await pilot.pause()
            text = screen_text(app)
            assert all(len(line) <= width for line in text)
            labels = " ".join(text[0].split())
            assert labels == "0 Timing 1 Progress 2 Sample Flow 3 Trace 4 Trajectory 5 Data Health"
        await pilot.press("0")
        await until(pilot, lambda: "iteration 412/5,000" in "\n".join(screen_text(app)))

    session(test, view_of(demo), size=(80, 40))


def test_the_panel_leaves_from_the_pages_when_the_job_has_ended(demo):
    async def test(app, pilot):
        await pilot.press("1")
        await until(pilot, lambda: isinstance(app.screen, TraceScreen))
        await show(app, pilot, view_of(demo, end=EndView(reason="done")))
        await until(pilot, lambda: not app.is_running)

    session(test, view_of(demo), leave_when_ended=True, request_stop=lambda: None)


def test_ctrl_c_asks_for_a_stop_from_the_pages_too(demo):
    asked = []

    async def test(app, pilot):
        await pilot.press("1")
        await until(pilot, lambda: isinstance(app.screen, TraceScreen))
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert asked == [1]
        assert app.is_running

    session(test, view_of(demo), request_stop=lambda: asked.append(1))


def test_a_run_that_was_moved_still_finds_its_traces(demo):
    moved = demo.parent.rename(demo.parent.with_name("moved"))
    gone = view_of(demo)
    gone = replace(gone, facts=replace(gone.facts, run_dir=str(moved)))

    async def test(app, pilot):
        await pilot.press("1")
        await until(pilot, lambda: isinstance(app.screen, TraceScreen))
        await until(pilot, lambda: rows(app, "#progress-steps") > 2)

    session(test, gone)
