"""The command as users start it: exit codes, redirected streams, a real pseudo-terminal."""

import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

import pytest
from synthetic_job import play

import unilab_monitor.__main__ as command
from unilab_monitor.target import trace_directory

pytestmark = pytest.mark.serial

TERMINAL = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "COLORTERM": "truecolor"}
COMMAND = [sys.executable, "-m", "unilab_monitor"]


def run(*args, **options):
    return subprocess.run(
        [*COMMAND, *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


class Terminal:
    """A monitor on a pseudo-terminal of its own."""

    def __init__(self, *args, columns=140, rows=44):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # Here, not in the parent: the size must be there before it is asked for.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            # Not execv: readline (loaded by pytest) has put a width into the C environment.
            os.execve(sys.executable, [*COMMAND, *args], {**os.environ, **TERMINAL})
        self.output = ""

    def read_until(self, pattern, timeout_s=30.0):
        deadline_s = time.monotonic() + timeout_s
        while not re.search(pattern, self.output):
            assert time.monotonic() < deadline_s, f"no {pattern!r} in {self.output[-2000:]!r}"
            self._read(0.2)

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def wait(self, timeout_s=30.0):
        """Exit code; what is still written is read."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            self._read(0.1)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                self._read(0.0)
                return os.waitstatus_to_exitcode(status)
        raise AssertionError("the monitor did not leave")

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def _read(self, timeout_s):
        if not select.select([self.fd], [], [], timeout_s)[0]:
            return
        try:
            self.output += os.read(self.fd, 1 << 16).decode(errors="replace")
        except OSError as error:
            if error.errno != errno.EIO:
                raise


@pytest.fixture
def terminal():
    opened = []

    def start(*args, **options):
        opened.append(Terminal(*args, **options))
        return opened[-1]

    yield start
    for one in opened:
        with contextlib.suppress(OSError):
            one.close()


def test_nothing_to_attach_to_is_exit_6_and_one_line():
    for args in ([], ["nobody"], ["nobody", "--once", "--json"], ["--plain"]):
        done = run(*args)
        assert done.returncode == 6
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1


def test_a_registry_that_is_not_safe_is_nothing_to_attach_to_and_says_why(registry, tmp_path):
    registry.mkdir(mode=0o755)
    registry.chmod(0o755)
    for args in ([], ["go2-1"]):
        done = run(*args)
        assert done.returncode == 6
        assert "chmod 700" in done.stderr
    (tmp_path / "run_config.json").write_text("{}")
    assert run(str(tmp_path), "--once", "--json").returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second uid")
def test_another_user_sees_nothing_and_changes_nothing(monkeypatch, make_job, capfd):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        monkeypatch.setenv("UNILAB_RUNTIME_DIR", f"{folder}/registry")
        job = make_job()
        before = sorted(os.listdir(job.folder.path))
        child = os.fork()  # the interpreter itself may be out of another user's reach
        if child == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os._exit(command.run(command.parser().parse_args(["go2-1", "--once", "--json"])))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
        out, err = capfd.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        assert sorted(os.listdir(job.folder.path)) == before
        job.end()


def test_once_json_is_one_object_on_one_line(make_job):
    job = make_job()
    playing = threading.Thread(
        target=play, args=(job, 60.0), kwargs={"stop": (over := threading.Event())}
    )
    playing.start()
    try:
        done = run("go2-1", "--once", "--json")
    finally:
        over.set()
        playing.join()
    assert done.returncode == 0
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    record = json.loads(line)
    assert record["state"] == "running"
    assert record["learner"]["values"]["Perf/learning_time"] > 0


def test_wrong_use_is_exit_2_and_help_is_exit_0():
    assert run("--nonsense").returncode == 2
    assert run("--panel").returncode == 2
    done = run("--help")
    assert done.returncode == 0
    assert "JOB | RUN_DIR" in done.stdout


def test_once_is_text_without_escape_codes(make_job):
    play(make_job(), 0.1)
    done = run("--once")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "Learner (Iter Wall)" in done.stdout


def test_without_a_terminal_plain_lines_follow_until_the_end(make_job):
    job = make_job()
    play(job, 0.1)
    job.end(reason="completed")
    done = run("go2-1")
    assert done.returncode == 0
    assert done.stdout == "go2-1 ended: completed (exit 0)\n"
    assert "\x1b" not in done.stdout + done.stderr


def test_a_process_of_another_version_is_exit_5(make_job):
    job = make_job()
    launch = job.folder.read_json("launch.json")
    launch["ranks"] = 3
    job.folder.write_json("launch.json", launch)
    done = run("go2-1", "--once", "--json")
    assert done.returncode == 5
    assert len(done.stderr.splitlines()) == 1


def test_a_closed_pipe_is_no_error(make_job):
    play(make_job(), 0.1)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "--once"], stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert done.returncode == 0
    assert done.stderr == b""


def test_the_monitor_loads_neither_torch_nor_mujoco_nor_warp(make_job):
    make_job()
    code = (
        "import sys, unilab_monitor.__main__, unilab_monitor.app\n"
        "heavy = {'torch', 'mujoco', 'warp', 'tensorboardX', 'hydra', 'omegaconf'}\n"
        "sys.exit(repr(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_terminal_is_drawn_on_and_restored(make_job, terminal):
    play(make_job(), 0.2)
    screen = terminal("go2-1")
    screen.read_until("Iter Wall")
    screen.press("q")
    assert screen.wait() == 0
    assert "\x1b[?1049h" in screen.output
    assert screen.output.rindex("\x1b[?1049l") > screen.output.rindex("\x1b[?1049h")


def test_ctrl_c_leaves_an_attached_monitor_and_the_job_goes_on(make_job, terminal):
    job = make_job()
    play(job, 0.2)
    screen = terminal("go2-1")
    screen.read_until("Iter Wall")
    screen.press("\x03")
    assert screen.wait() == 0
    assert job.folder.is_live()


def test_sigterm_restores_the_terminal(make_job, terminal):
    play(make_job(), 0.2)
    screen = terminal("go2-1")
    screen.read_until("Iter Wall")
    os.kill(screen.pid, signal.SIGTERM)
    assert screen.wait() == 0
    assert "\x1b[?1049l" in screen.output


@pytest.fixture
def launcher(tmp_path):
    """A synthetic job of another process: says when it gets a SIGINT, ends at the third."""
    script = Path(__file__).with_name("synthetic_job.py")
    arguments = ["--job", "go2-1", "--run-dir", str(tmp_path), "--stops", "3", "--seconds", "120"]
    child = subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(script.parents[2])},
    )
    assert child.stdout.readline() == "running\n"
    yield child
    if child.poll() is None:
        for _ in range(3):
            child.send_signal(signal.SIGINT)
            time.sleep(0.05)
    child.communicate(timeout=30)


def test_the_panel_turns_ctrl_c_into_sigint_and_leaves_with_the_job(launcher, terminal):
    screen = terminal("--panel", "--job", "go2-1")
    screen.read_until("Iter Wall")
    for text in ("finishing the iteration", "leaving without saving"):
        screen.press("\x03")
        assert launcher.stdout.readline() == "SIGINT\n"
        screen.read_until(text)
    screen.press("\x03")
    assert launcher.stdout.readline() == "SIGINT\n"
    assert screen.wait() == 0
    assert launcher.wait(timeout=30) == 0


def test_q_leaves_the_panel_with_exit_0_and_sends_nothing(launcher, terminal):
    screen = terminal("--panel", "--job", "go2-1")
    screen.read_until("plain lines")
    screen.press("q")
    assert screen.wait() == 0
    assert not select.select([launcher.stdout], [], [], 0.5)[0]
    assert launcher.poll() is None


def test_an_attached_monitor_stays_after_the_end_with_the_reason(launcher, terminal):
    screen = terminal("go2-1")
    screen.read_until("Iter Wall")
    for _ in range(3):
        launcher.send_signal(signal.SIGINT)
        assert launcher.stdout.readline() == "SIGINT\n"
    screen.read_until("stopped by SIGINT")
    screen.press("q")
    assert screen.wait() == 0


def test_a_directory_of_rl_traces_is_told_from_a_run_and_answers_with_its_figures(tmp_path, capsys):
    traces = tmp_path / "traces"
    (traces / "progress").mkdir(parents=True)
    (traces / "progress" / "20260101-00.log").write_text("Total training steps: 7\n")
    assert command.run(command.parser().parse_args([str(traces), "--once", "--json"])) == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["progress"]["total_steps"] == 7
    assert {"flow", "trajectories", "health"} <= set(seen)
    (traces / "run_config.json").write_text("{}")
    assert trace_directory(str(traces)) is None
