import os
import signal
import subprocess
import sys

from unilab_ipc.heartbeat import RoleStatus
from unilab_ipc.peers import process_start_ticks
from unilab_monitor.stop import LauncherStop

# Prints one line per SIGINT, so that each arrival is seen before the next is sent.
LAUNCHER = """
import signal, sys
signal.signal(signal.SIGINT, lambda *_: print("stop", flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""


def row(pid, ticks):
    return RoleStatus(
        role="launcher",
        rank=0,
        pid=pid,
        start_ticks=ticks,
        phase="training/supervise",
        awaits=None,
        progress=0,
        beat_ns=0,
        iteration=0,
        env_steps=0,
        signal=0,
        state="alive",
    )


def test_each_call_sends_one_sigint_to_the_launcher():
    child = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        stop = LauncherStop(lambda: row(child.pid, process_start_ticks(child.pid)))
        for _ in range(3):
            assert stop() is None
            assert child.stdout.readline() == "stop\n"
    finally:
        child.kill()
        child.wait()


def test_a_process_that_only_has_the_pid_is_never_signalled():
    received = []
    before = signal.signal(signal.SIGINT, lambda *_: received.append(1))
    try:
        stop = LauncherStop(lambda: row(os.getpid(), process_start_ticks(os.getpid()) + 1))
        assert stop() == "The launcher has ended already"
    finally:
        signal.signal(signal.SIGINT, before)
    assert received == []


def test_without_a_board_nothing_is_sent():
    assert "not attached yet" in LauncherStop(lambda: None)()
