"""The panel in a pseudo-terminal: it borrows the terminal and always gives it back."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

FAKES = Path(__file__).parent / "fake_children"
PATIENCE_S = 60.0
ALTERNATE_SCREEN = b"\x1b[?1049h"


class Terminal:
    """unilab-launch in a terminal of 140 x 40."""

    def __init__(self, tmp_path):
        environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("UNILAB_")},
            "PYTHONPATH": str(FAKES),
            "UNILAB_RUNTIME_DIR": str(tmp_path / "registry"),
            "CUDA_VISIBLE_DEVICES": "",
            "TERM": "xterm-256color",
        }
        command = (
            sys.executable, "-m", "unilab_core.launch", "--algo", "sac", "--task",
            "go2_joystick_flat", "--job", "job-1", f"training.log_root={tmp_path / 'logs'}",
            "training.no_play=true", "algo.num_envs=4", "algo.max_iterations=1000000",
        )  # fmt: skip
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(tmp_path)
            os.execve(sys.executable, command, environ)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        self.seen = b""

    def read(self, timeout_s=0.1):
        if select.select([self.fd], [], [], timeout_s)[0]:
            try:
                self.seen += os.read(self.fd, 65536)
            except OSError:
                return False
        return True

    def until(self, pattern, *, since=0):
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            if re.search(pattern, self.seen[since:]):
                return len(self.seen)
            self.read()
        raise AssertionError(f"never saw {pattern!r} in {self.seen[-2000:]!r}")

    def line_mode(self):
        return bool(termios.tcgetattr(self.fd)[3] & termios.ICANON)

    def type(self, keys):
        os.write(self.fd, keys)

    def panel_pid(self):
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for child in children:
            if b"unilab_monitor" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
        return None

    def wait(self):
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self.read(0.05) and select.select([self.fd], [], [], 0.05)[0]:
                    pass
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"did not end: {self.seen[-2000:]!r}")

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def terminal(tmp_path):
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def test_ctrl_c_in_the_panel_saves_and_the_last_line_follows_on_the_normal_screen(terminal):
    terminal.until(re.escape(ALTERNATE_SCREEN))
    terminal.until(rb"Iter Wall")
    time.sleep(1.0)
    terminal.type(b"\x03")
    assert terminal.wait() == 130
    tail = terminal.seen.rpartition(b"\x1b[?1049l")[2]
    assert b"stopped by SIGINT: " in tail
    assert b"checkpoint of iteration" in tail
    assert b"Traceback" not in terminal.seen


def test_q_leaves_the_panel_for_plain_lines_and_ctrl_c_still_works(terminal):
    terminal.until(rb"Iter Wall")
    terminal.type(b"q")
    mark = terminal.until(rb"\x1b\[\?1049l")
    terminal.until(rb"iteration \d+/1000000", since=mark)
    assert terminal.line_mode()
    terminal.type(b"\x03")
    assert terminal.wait() == 130


def test_a_killed_panel_gives_the_terminal_back_and_training_goes_on(terminal):
    terminal.until(rb"Iter Wall")
    assert not terminal.line_mode()
    os.kill(terminal.panel_pid(), signal.SIGKILL)
    mark = terminal.until(rb"the panel ended with code -9; plain lines go on")
    terminal.until(rb"iteration \d+/1000000", since=mark)
    assert terminal.line_mode()
    assert b"\x1b[?25h" in terminal.seen[terminal.seen.rindex(b"\x1b[?1049l") :]
    terminal.type(b"\x03")
    assert terminal.wait() == 130
