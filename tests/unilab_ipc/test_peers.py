"""Identity and liveness of real processes."""

import os
import select
import signal
import subprocess
from collections.abc import Callable

import pytest

from unilab_ipc.errors import PeerDead
from unilab_ipc.peers import Peer, process_start_ticks, process_state, set_parent_death_signal

Spawn = Callable[..., subprocess.Popen[str]]

SLEEPER = "import sys; print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def child(spawn: Spawn) -> subprocess.Popen[str]:
    child = spawn(SLEEPER)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    return child


def peer_of(child: subprocess.Popen[str]) -> Peer:
    ticks = process_start_ticks(child.pid)
    assert ticks is not None
    return Peer("learner", 0, child.pid, ticks)


def wait_readable(peer: Peer) -> None:
    assert select.select([peer.fileno()], [], [], 30.0)[0]


def test_a_live_process_is_not_dead(child: subprocess.Popen[str]) -> None:
    assert not peer_of(child).open().is_dead()


def test_a_killed_but_unreaped_process_is_dead(child: subprocess.Popen[str]) -> None:
    peer = peer_of(child).open()
    child.kill()
    wait_readable(peer)
    assert peer.is_dead()
    assert process_state(child.pid) == "Z"


def test_a_stopped_process_is_not_dead_and_can_be_killed(child: subprocess.Popen[str]) -> None:
    peer = peer_of(child).open()
    peer.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert process_state(child.pid) == "T"
    assert not peer.is_dead()
    peer.send_signal(signal.SIGKILL)
    wait_readable(peer)
    assert child.wait() == -signal.SIGKILL


def test_a_reused_pid_is_not_taken_for_the_peer(child: subprocess.Popen[str]) -> None:
    ticks = process_start_ticks(child.pid)
    assert ticks is not None
    with pytest.raises(PeerDead, match=f"pid {child.pid}"):
        Peer("learner", 0, child.pid, ticks + 1).open()


def test_a_process_that_is_gone_is_dead(child: subprocess.Popen[str]) -> None:
    peer = peer_of(child)
    opened = peer_of(child).open()
    child.kill()
    child.wait()
    with pytest.raises(PeerDead):
        peer.open()
    with pytest.raises(PeerDead):
        opened.send_signal(signal.SIGTERM)
    assert process_start_ticks(child.pid) is None
    assert process_state(child.pid) is None


def test_an_unregistered_row_is_dead_and_signals_nobody() -> None:
    with pytest.raises(PeerDead):
        Peer("learner", 0, 0, 0).open()


def test_close_gives_the_descriptor_back(child: subprocess.Popen[str]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    peer = peer_of(child).open()
    peer.open()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    peer.close()
    peer.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_start_ticks_of_this_process_are_stable() -> None:
    assert process_start_ticks(os.getpid()) == process_start_ticks(os.getpid())


def test_a_child_whose_parent_has_changed_gets_an_error() -> None:
    with pytest.raises(PeerDead):
        set_parent_death_signal(os.getppid() + 1)


@pytest.mark.e2e
def test_children_end_when_their_parent_is_killed(spawn: Spawn) -> None:
    grandchild = (
        "import os, sys\n"
        "from unilab_ipc.peers import set_parent_death_signal\n"
        "set_parent_death_signal(int(sys.argv[1]))\n"
        "print(os.getpid(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = spawn(
        "import os, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())],\n"
        "                 stdin=subprocess.PIPE).wait()\n",
        grandchild,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    ticks = process_start_ticks(pid)
    assert ticks is not None
    peer = Peer("collector", 0, pid, ticks).open()
    parent.kill()
    wait_readable(peer)
