"""Lines for the person who watches, and the panel that may borrow the terminal.

While the panel draws, lines are held back (they would tear the picture) and printed when it
leaves; `logs/launcher-0.log` has all of them at once. A standard output that nobody reads any more
(`| head`) is no reason to end a training.
"""

import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from unilab_core.launch.environment import child_environ
from unilab_ipc.errors import PeerDead
from unilab_ipc.peers import Peer, process_start_ticks

PANEL_LEAVE_S = 3.0
PANEL_TERM_S = 1.0

# Leave the alternate screen, show the cursor, switch off mouse and paste reports and colours.
RESTORE = (
    "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[<u\x1b[0m"
)


class Console:
    """Where lines go. One per launcher."""

    def __init__(self, out: TextIO = sys.stdout, err: TextIO = sys.stderr) -> None:
        self._out = out
        self._err = err
        self._held: list[tuple[TextIO, str]] | None = None
        self._log: TextIO | None = None

    def keep_log(self, path: Path) -> TextIO:
        """Also write every line to this file from now on."""
        self._log = path.open("a", encoding="utf-8", buffering=1)
        return self._log

    def say(self, text: str) -> None:
        """A line on standard output."""
        self._write(self._out, text)

    def warn(self, text: str) -> None:
        """A line on standard error."""
        self._write(self._err, text)

    def hold(self) -> None:
        """Keep lines back: somebody else draws."""
        self._held = self._held if self._held is not None else []

    def release(self) -> None:
        """Print what was kept back."""
        held, self._held = self._held or [], None
        for stream, text in held:
            _print(stream, text)

    def duplicate_output(self) -> int | None:
        """Standard output under another number, to hand down; None where it has none."""
        try:
            return os.dup(self._out.fileno())
        except (OSError, ValueError):
            return None

    def go_silent(self) -> None:
        """Let go of the terminal (--detach): from here on only the log is written."""
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (self._out, self._err):
            stream.flush()
            os.dup2(null, stream.fileno())
        os.close(null)

    def _write(self, stream: TextIO, text: str) -> None:
        if self._log is not None:
            stamp = time.strftime("%H:%M:%S")
            try:
                self._log.write("".join(f"{stamp} {line}\n" for line in text.splitlines()))
            except OSError:
                self._log = None  # a full disk costs the log, not the training
        if self._held is None:
            _print(stream, text)
        else:
            self._held.append((stream, text))


class Panel:
    """The monitor as a child in the launcher's foreground process group."""

    def __init__(self, job: str, environ: Mapping[str, str]) -> None:
        self._saved = terminal_settings()
        self._popen = subprocess.Popen(
            (sys.executable, "-m", "unilab_monitor", "--panel", "--job", job),
            env=child_environ(environ, "monitor", {}),
        )
        ticks = process_start_ticks(self._popen.pid) or 0
        self._peer = Peer("monitor", 0, self._popen.pid, ticks).open()

    def fileno(self) -> int:
        """Readable once the panel has ended."""
        return self._peer.fileno()

    def reap(self) -> int | None:
        """Exit code if it has ended; the terminal is as before then."""
        code = self._popen.poll()
        if code is not None:
            self._restore(code)
        return code

    def leave(self) -> None:
        """It leaves by itself when the job has ended; help where it does not."""
        for patience_s, signum in (
            (PANEL_LEAVE_S, signal.SIGTERM),
            (PANEL_TERM_S, signal.SIGKILL),
            (PANEL_TERM_S, None),
        ):
            if _wait_readable(self._peer.fileno(), patience_s):
                break
            if signum is not None:
                self.send_signal(signum)
        self._restore(self._popen.poll())

    def send_signal(self, signum: int) -> None:
        """Signal it; one that has ended is no error."""
        try:
            self._peer.send_signal(signum)
        except PeerDead:
            return

    def _restore(self, code: int | None) -> None:
        if self._saved is None:
            return
        if code != 0:  # a clean exit has restored the screen itself
            _print(sys.stderr, RESTORE, end="")
        restore_terminal(self._saved)
        self._peer.close()
        self._saved = None


def can_draw(environ: Mapping[str, str]) -> bool:
    """Whether there is a terminal for the panel on all three streams."""
    if environ.get("TERM", "dumb") == "dumb":
        return False
    return all(
        stream is not None and not stream.closed and stream.isatty()
        for stream in (sys.stdin, sys.stdout, sys.stderr)
    )


def terminal_settings() -> list[Any] | None:
    """Line discipline of the terminal, to put back later."""
    try:
        return termios.tcgetattr(sys.stdin.fileno())
    except (termios.error, OSError, ValueError):
        return None


def restore_terminal(saved: list[Any]) -> None:
    """Put the line discipline back; a terminal that is gone needs none."""
    # From a background process group the call would stop us with SIGTTOU.
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, saved)
    except (termios.error, OSError, ValueError):
        return
    finally:
        signal.signal(signal.SIGTTOU, before)


def _wait_readable(fd: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(round(timeout_s * 1000)))


def _print(stream: TextIO, text: str, end: str = "\n") -> None:
    try:
        print(text, file=stream, end=end, flush=True)
    except (OSError, ValueError):  # nobody reads, or the stream is closed
        return
