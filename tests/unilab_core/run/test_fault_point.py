"""Faults wrapped around places: the n-th passage, the moment, and nothing left afterwards."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from unilab_core.run.fault_point import FIRED, InjectedFault, Place, Sight, arm
from unilab_core.run.faults import parse_fault
from unilab_ipc.heartbeat import HeartbeatBoard, board_dims
from unilab_ipc.memory import local_segment
from unilab_ipc.segments import HEARTBEAT

HERE = __name__


class Work:
    """Something that faults are put into."""

    done: list = []  # noqa: RUF012 - the test looks at it

    def step(self, value):
        self.done.append(value)
        return [float(value)]

    def protocol(self):
        self.done.append("first")
        yield "half"
        self.done.append("second")
        yield "whole"


class Inheriting(Work):
    """A method that it does not define itself."""


def open_board(board):
    return board


@pytest.fixture
def work(monkeypatch):
    # The places name this module; under pytest's importlib mode it goes by its path.
    monkeypatch.setitem(sys.modules, HERE, sys.modules[Work.__module__])
    Work.done = []
    undo = []

    def put(text, place):
        undo.append(arm(parse_fault(text), [place]))
        return Work()

    yield put
    for disarm in undo:
        disarm()


def place(method="step", owner="Work", **more):
    return Place(owner=f"{Work.__module__}:{owner}", method=method, **more)


def test_the_nth_passage_is_struck_and_no_other(work, capfd):
    struck = work("learner:P4a:3:raise", place())
    assert [struck.step(k) for k in (1, 2)] == [[1.0], [2.0]]
    with pytest.raises(InjectedFault, match="UNILAB_FAULT=learner:P4a:3:raise"):
        struck.step(3)
    assert struck.step(4) == [4.0]
    assert Work.done == [1, 2, 4], "before: the third call never reached the method"
    line = capfd.readouterr().err
    assert line.startswith(f"{FIRED}: learner:P4a:3:raise pid {os.getpid()} t_ns ")
    assert int(line.split()[-1]) <= time.monotonic_ns()


def test_after_means_that_the_work_is_done(work):
    struck = work("learner:P4a:1:raise", place(moment="after"))
    with pytest.raises(InjectedFault):
        struck.step(1)
    assert Work.done == [1]


def test_a_step_of_a_protocol_is_a_moment_inside_it(work):
    struck = work("learner:P4d:1:raise", place("protocol", moment="half"))
    with pytest.raises(InjectedFault):
        list(struck.protocol())
    assert Work.done == ["first"]


def test_calls_that_are_no_passage_are_not_counted(work):
    struck = work("learner:P4a:2:raise", place(when=lambda _self, value: value > 10))
    for value in (1, 11, 2, 3):
        struck.step(value)
    with pytest.raises(InjectedFault):
        struck.step(12)


def test_a_full_disk_is_the_error_that_the_kernel_raises(work):
    struck = work("learner:P5:1:enospc", place())
    with pytest.raises(OSError, match="No space left") as raised:
        struck.step(1)
    assert raised.value.errno == errno.ENOSPC


def test_nan_spoils_what_passes_once(work):
    def spoil(_args, result):
        result[0] = float("nan")

    struck = work("learner:P4a:2:nan", place(moment="after", spoil=spoil))
    assert struck.step(1) == [1.0]
    assert struck.step(2) != [2.0]
    assert struck.step(3) == [3.0]


def test_a_sleep_goes_on_after_its_time(work):
    struck = work("learner:P4a:1:sleep=0.02", place())
    start_s = time.monotonic()
    struck.step(1)
    assert time.monotonic() - start_s >= 0.02
    assert Work.done == [1]


@pytest.mark.parametrize("owner", ["Work", "Inheriting"])
def test_disarming_leaves_the_class_as_it_was(monkeypatch, owner):
    monkeypatch.setitem(sys.modules, HERE, sys.modules[Work.__module__])
    cls = {"Work": Work, "Inheriting": Inheriting}[owner]
    before = dict(vars(cls))
    disarm = arm(parse_fault("learner:P4a:1:raise"), [place(owner=owner)])
    assert vars(cls)["step"] is not before.get("step")
    disarm()
    assert dict(vars(cls)) == before


def test_a_sight_strikes_when_another_role_enters_the_phase(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, HERE, sys.modules[Work.__module__])
    board = HeartbeatBoard(local_segment(HEARTBEAT, board_dims(1)))
    learner = board.role("learner", 0)
    sight = Sight(
        opens=Place(owner=Work.__module__, method="open_board", moment="after"),
        board=lambda args, _result: args[0],
        role="learner",
        phases=frozenset({"training/checkpoint"}),
    )
    struck = []
    monkeypatch.setattr(signal, "raise_signal", struck.append)
    disarm = arm(parse_fault("collector:P5:1:kill"), [sight])
    try:
        sys.modules[Work.__module__].open_board(board)
        learner.phase("training/learner_update")
        time.sleep(0.05)
        assert struck == []
        learner.phase("training/checkpoint")
        deadline_s = time.monotonic() + 10.0
        while not struck and time.monotonic() < deadline_s:
            time.sleep(0.005)
    finally:
        disarm()
    assert struck == [signal.SIGKILL]
    assert FIRED in capfd.readouterr().err


@pytest.mark.parametrize(
    ("action", "code"), [("kill", -signal.SIGKILL), ("segv", -signal.SIGSEGV), ("exit", 7)]
)
def test_deadly_actions_end_the_process_at_the_place(action, code):
    script = (
        "import json\n"
        "from unilab_core.run.fault_point import Place, arm\n"
        "from unilab_core.run.faults import parse_fault\n"
        f"arm(parse_fault('learner:P4a:1:{action}'), [Place(owner='json', method='dumps')])\n"
        "print('before', flush=True)\n"
        "json.dumps({})\n"
        "print('after', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == code
    assert done.stdout == "before\n"
    assert FIRED in done.stderr
