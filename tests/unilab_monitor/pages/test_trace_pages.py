import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.text import Text
from textual.app import App
from textual.widgets import Input, Static, TabbedContent

from unilab_core.telemetry.rl_trace.demo_trace import generate, worked_rows
from unilab_core.telemetry.rl_trace.formats import is_trace_directory
from unilab_core.telemetry.rl_trace.reader import ReaderSettings
from unilab_monitor.pages.flow_page import FlowPage
from unilab_monitor.pages.health_page import HealthPage
from unilab_monitor.pages.live_text import LiveText
from unilab_monitor.pages.progress_page import ProgressPage
from unilab_monitor.pages.row_table import RowTable
from unilab_monitor.pages.trace_app import TraceApp, main_once
from unilab_monitor.pages.trace_page import TracePage
from unilab_monitor.pages.trace_pages import TracePages, page_names
from unilab_monitor.pages.trajectory_page import TrajectoryPage

BIDI, ESCAPE = "\u202e", "\x1b[31m"
HOSTILE = f"[bold red]{BIDI}x[/]{ESCAPE}y\a&amp;<b>"


def run(coroutine):
    return asyncio.run(coroutine)


def app_of(root):
    return TraceApp(root, ReaderSettings())


async def until(pilot, condition, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        await pilot.pause(0.05)


def active(app):
    return app.query_one(TabbedContent).active


def text_of(app, selector):
    shown = app.query_one(selector).content
    return shown.plain if isinstance(shown, Text) else str(shown)


def table(app, selector):
    return app.query_one(selector, RowTable)


def cells(widget):
    return [[str(cell) for cell in widget.cells_at(at)] for at in range(widget.row_count)]


@pytest.fixture
def demo(tmp_path):
    root = tmp_path / "run" / "rl_trace"
    start_ms = int(time.time() * 1000) - 120_000
    generate(root, num_events=8_000, num_shards=3, start_ms=start_ms, trajectories_per_step=128)
    return root


def test_the_way_from_a_step_to_a_turn_works_by_keyboard(demo):
    async def session():
        app = app_of(demo)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: table(app, "#progress-steps").row_count > 2)
            assert isinstance(app.focused, RowTable)
            await pilot.press("down", "enter")  # the step before the newest
            await until(pilot, lambda: "chosen" in text_of(app, "#progress-strip"))
            assert app.focused is table(app, "#progress-stages")
            chosen = cells(table(app, "#progress-stages"))[app.focused.cursor_row]
            assert chosen[0] == "update actor"  # the longest stage
            await pilot.press("enter")
            await until(pilot, lambda: active(app) == "flow")
            flow = app.query_one(FlowPage)
            assert flow.step is not None
            await until(pilot, lambda: table(app, "#flow-slowest").row_count == 5)
            transitions = table(app, "#flow-transitions")
            assert app.focused is transitions
            assert cells(transitions)[transitions.cursor_row][0] == "update"
            await pilot.press("up", "up", "up", "up", "up", "up", "up")
            assert cells(transitions)[transitions.cursor_row][0] == "generation"
            await pilot.press("enter")
            assert app.focused is table(app, "#flow-slowest")
            slowest = cells(table(app, "#flow-slowest"))[0][0]
            await pilot.press("enter")
            await until(pilot, lambda: active(app) == "trace")
            await until(pilot, lambda: table(app, "#trace-events").row_count > 10)
            assert slowest in text_of(app, "#trace-head")
            assert "first generation" in text_of(app, "#trace-chain")
            assert "trained" in text_of(app, "#trace-waterfall")
            await pilot.press("t")
            await until(pilot, lambda: active(app) == "trajectory")
            await until(pilot, lambda: table(app, "#trajectory-turns").row_count == 2)
            await pilot.press("down")
            await until(pilot, lambda: "Turn 1" in text_of(app, "#trajectory-turn"))
            assert "search" in text_of(app, "#trajectory-turn")
            for page in ("trace", "flow"):
                await pilot.press("escape")
                await until(pilot, lambda page=page: active(app) == page)
            await pilot.press("escape")  # out of the chosen step
            await until(pilot, lambda: flow.step is None)
            await pilot.press("escape")
            await until(pilot, lambda: active(app) == "progress")

    run(session())


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_every_page_draws_at_every_width(demo, width):
    async def session():
        app = app_of(demo)
        async with app.run_test(size=(120, 36)) as pilot:
            await until(pilot, lambda: table(app, "#progress-steps").row_count > 0)
            for key in "12345":
                await pilot.press(key)
                await pilot.resize_terminal(width, 36)
                await pilot.pause(0.2)
                assert app.export_screenshot()
            assert list(page_names())[-1] == active(app) == "health"

    run(session())


def test_worked_set_on_the_flow_page(tmp_path):
    folder = tmp_path / "sample"
    folder.mkdir()
    (folder / "h-pid1.csv").write_text("".join(worked_rows(int(time.time() * 1000) - 20_000)))

    async def session():
        app = app_of(tmp_path)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press("2")
            await until(pilot, lambda: table(app, "#flow-stuck").row_count == 2)
            rows = {row[0]: row[1:] for row in cells(table(app, "#flow-transitions"))}
            assert rows["generation"][:6] == [
                "3",
                "6.00 s",
                "6.00 s",
                "7.60 s",
                "7.96 s*",
                "8.00 s",
            ]
            assert [row[:2] for row in cells(table(app, "#flow-stuck"))] == [
                ["u2/1", "generating"],
                ["u2/0", "scored awaiting sampling"],
            ]
            assert "trajectory/ is missing" not in text_of(app, "#flow-head")
            await pilot.press("1")
            assert "progress/ is missing" in text_of(app, "#progress-head")

    run(session())


def test_an_empty_directory_says_what_to_check(tmp_path):
    async def session():
        app = app_of(tmp_path / "nothing")
        async with app.run_test(size=(80, 30)) as pilot:
            await until(pilot, lambda: "is missing" in text_of(app, "#progress-head"))
            for key in "12345":
                await pilot.press(key)
                await pilot.pause(0.1)
                assert app.export_screenshot()
            shown = text_of(app, "#health-checks")
            assert "-maxdepth 2 -type f" in shown
            assert "VERL_TRACE_DIR" in shown
            assert "4. " in shown
            assert "missing here: progress/, sample/, trajectory/" in shown

    run(session())


def test_a_damaged_directory_shows_its_counters(tmp_path):
    for name in ("sample", "progress", "trajectory"):
        (tmp_path / name).mkdir()
    row = "j,sample,u/0,RUNNING,1787215030000,stage=ROLLOUT_START|detail=x\n"
    data = row + row + "  more\n\0\0" + row.replace("u/0", "u/1") + "j,sample,broken\n"
    (tmp_path / "sample" / "h-pid1.csv").write_text(data)
    (tmp_path / "progress" / "20260820-16.log").write_bytes(b"\xff\xfe noise\n")
    (tmp_path / "trajectory" / "t.jsonl").write_text(
        '{"prompt_uid":"u","sample_index":0,"raw_message":"{"}\n'
    )
    (tmp_path / "foreign.txt").write_text("x")

    async def session():
        app = app_of(tmp_path)
        async with app.run_test(size=(100, 40)) as pilot:
            await pilot.press("5")
            counters = table(app, "#health-counters")
            await until(pilot, lambda: counters.row_count > 0)
            await until(pilot, lambda: dict(r[:2] for r in cells(counters))["inner_bad"] == "1")
            found = dict(row[:2] for row in cells(counters))
            assert (found["duplicate"], found["continuation"], found["malformed"]) == (
                "1",
                "1",
                "1",
            )
            assert (found["nul"], found["ignored_files"]) == ("1", "1")
            assert "foreign.txt" in text_of(app, "#health-checks")
            assert cells(table(app, "#health-files"))[0][0].startswith(("sample", "progress"))

    run(session())


def hostile_directory(root):
    for name in ("sample", "progress", "trajectory"):
        (root / name).mkdir()
    rows = [
        f"{HOSTILE},sample,{HOSTILE}/0,RUNNING,{1787215000000 + ms},from={HOSTILE}|to={HOSTILE}"
        f"|stage={stage}|global_step=1|detail={HOSTILE}\n"
        for ms, stage in ((0, "ROLLOUT_START"), (2000, HOSTILE), (3000, "ROLLOUT_FINISH"))
    ]
    (root / "sample" / "h-pid1.csv").write_text("".join(rows))
    turn = {
        "turn_index": 0,
        "completion_text": f"{HOSTILE}\n" + "z" * 10_000_000,
        "observation_text": HOSTILE,
    }
    inner = {"turns": [turn], "initial_prompt_text": HOSTILE, "total_time_ms": 5}
    line = {"prompt_uid": HOSTILE, "sample_index": 0, "raw_message": json.dumps(inner)}
    (root / "trajectory" / "t.jsonl").write_text(json.dumps(line) + "\n")
    log = f"{'=' * 20} Step 1 {'=' * 20}\nstart update actor\n{HOSTILE}\n"
    log += f"Task {HOSTILE}/0 is completed, score=1 status={HOSTILE}\n"
    (root / "progress" / "20260820-16.log").write_text(log + "q" * 10_000_000 + "\n")
    (root / f"{HOSTILE.replace('/', '-')}").write_text("")


@pytest.mark.slow
def test_hostile_text_is_literal_and_harmless_on_every_page(tmp_path):
    hostile_directory(tmp_path)

    async def session():
        app = app_of(tmp_path)
        async with app.run_test(size=(160, 50)) as pilot:
            await pilot.press("4")
            await until(pilot, lambda: table(app, "#trajectory-list").row_count == 1)
            await pilot.press("2")
            await until(pilot, lambda: table(app, "#flow-stuck").row_count == 1)
            await pilot.pause(0.2)
            table(app, "#flow-stuck").focus()
            await pilot.press("enter")
            await until(pilot, lambda: table(app, "#trace-events").row_count == 3)
            (_, event, _) = cells(table(app, "#trace-events"))
            assert "[bold red]" in event[7]
            await pilot.press("t")
            await until(pilot, lambda: table(app, "#trajectory-turns").row_count == 1)
            await pilot.press("enter", "r")
            await pilot.pause(0.2)
            assert "[bold red]" in text_of(app, "#trajectory-turn")
            for key in "12345":
                await pilot.press(key)
                await pilot.pause(0.1)
                screen = "".join(
                    segment.text
                    for line in app.screen._compositor.render_strips()
                    for segment in line
                )
                assert BIDI not in screen
                assert "\x1b" not in screen
                assert "\a" not in screen
            for widget in (*app.query(Static), *app.query(LiveText)):
                if isinstance(widget.content, Text):
                    assert BIDI not in widget.content.plain
                    assert "\x1b" not in widget.content.plain

    run(session())


def test_events_can_be_filtered_and_an_id_entered(demo):
    async def session():
        app = app_of(demo)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press("2")
            await until(pilot, lambda: table(app, "#flow-stuck").row_count > 0)
            await pilot.press("3")
            await pilot.pause(0.2)
            await pilot.press("g")
            assert app.focused is app.query_one("#trace-id", Input)
            await pilot.press("escape")
            assert active(app) == "trace"
            assert app.focused is table(app, "#trace-events")
            await pilot.press("g")
            name = "000001-0000-7e51/1"
            await pilot.press(*[{"/": "slash", "-": "minus"}.get(c, c) for c in name], "enter")
            await until(pilot, lambda: table(app, "#trace-events").row_count > 10)
            await pilot.press("slash", *"replay")
            await until(pilot, lambda: table(app, "#trace-events").row_count == 1)
            await pilot.press("enter")
            assert app.focused is table(app, "#trace-events")

    run(session())


def test_appended_events_show_by_themselves(tmp_path):
    (tmp_path / "sample").mkdir()
    path = tmp_path / "sample" / "h-pid1.csv"
    now_ms = int(time.time() * 1000)
    row = "j,sample,u/{},RUNNING,{},stage=ROLLOUT_START|detail=x\n"
    path.write_text(row.format(0, now_ms))

    async def session():
        app = app_of(tmp_path)
        async with app.run_test(size=(100, 30)) as pilot:
            await pilot.press("2")
            await until(pilot, lambda: table(app, "#flow-stuck").row_count == 1)
            with open(path, "a") as stream:
                stream.write(row.format(1, now_ms))
            await until(pilot, lambda: table(app, "#flow-stuck").row_count == 2)

    run(session())


def test_the_pages_can_be_mounted_in_another_application(demo):
    class Other(App):
        def compose(self):
            yield TracePages(demo, ReaderSettings())

    async def session():
        app = Other()
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: table(app, "#progress-steps").row_count > 0)
            for page in (ProgressPage, FlowPage, TracePage, TrajectoryPage, HealthPage):
                assert app.query_one(page)

    run(session())


def test_once_prints_one_json_line(demo, capsys):
    assert main_once(demo, json=True, settings=ReaderSettings()) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out)["flow"]["totals"]["trajs"] > 100
    assert main_once(demo, json=False, settings=ReaderSettings()) == 0
    assert "trajectories trajs" in capsys.readouterr().out
    assert main_once(demo / "none") == 6
    assert is_trace_directory(demo)
    assert not is_trace_directory(demo.parent)


def test_the_module_answers_from_a_shell_and_loads_no_torch(demo):
    code = (
        "import sys; from unilab_monitor.pages.trace_app import main; "
        f"code = main(['--once', '--json', {str(demo)!r}]); "
        "print([m for m in ('torch', 'mujoco') if m in sys.modules], file=sys.stderr); "
        "sys.exit(code)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stderr.strip() == "[]"
    assert json.loads(out.stdout)["progress"]["mode"] == "disagg"
    assert Path(demo).is_dir()


def test_an_error_of_the_reader_is_said_on_the_page(demo, monkeypatch):
    def broken(self, **options):
        raise RuntimeError("[b]boom[/b]")

    monkeypatch.setattr("unilab_core.telemetry.rl_trace.reader.TraceReader.snapshot", broken)

    async def session():
        app = app_of(demo)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: len(app._notifications) == 1)
            (note,) = list(app._notifications)
            assert "[b]boom[/b]" in note.message

    run(session())
