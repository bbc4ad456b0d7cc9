"""A child's start and end, with a launcher's files made by hand and a real process per test."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from unilab_core.run.run_dir import RunPaths, create_run_dir
from unilab_ipc.doorbell import Doorbell
from unilab_ipc.heartbeat import HeartbeatBoard, board_dims
from unilab_ipc.memory import create_segment
from unilab_ipc.names import new_run_id, segment_name
from unilab_ipc.registry import JobFolder
from unilab_ipc.segments import HEARTBEAT

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

PATIENCE_S = 30.0


class Host:
    """What the launcher provides, without the launcher."""

    def __init__(self, config, tmp_path, monkeypatch):
        monkeypatch.setenv("UNILAB_RUNTIME_DIR", str(tmp_path / "registry"))
        self.folder = JobFolder.claim("job-1", {})
        self.run = RunPaths(create_run_dir(config))
        self.run.config.write_text(json.dumps({"config": config.to_dict()}))
        name = segment_name(new_run_id(), "heartbeat", 0)
        self.segment = create_segment(HEARTBEAT, name, board_dims(1))
        self.board = HeartbeatBoard(self.segment)
        self.beat = self.board.role("launcher", 0)
        self.beat.register()
        roles = ("launcher", "collector", "learner")
        self.bells = {r: Doorbell.create(self.folder.bell_path(r, 0)) for r in roles}
        record = {
            "board": name, "ranks": 1, "run_dir": str(self.run.run_dir),
            "threads": {"learner": 3, "collector": None},
        }  # fmt: skip
        self.folder.write_json("launch.json", record)
        self.processes = []

    def start(self, body, job="job-1"):
        script = (
            "import os, signal, sys, time\n"
            "from unilab_core.run.child import child_session\n"
            "from unilab_core.run.failures import EnvError, NonFiniteError\n"
            "with child_session('learner') as ctx:\n" + textwrap.indent(textwrap.dedent(body), "  ")
        )
        process = subprocess.Popen(
            (sys.executable, "-c", script, "--job", job),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def finish(self, body, job="job-1"):
        process = self.start(body, job)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    def until_phase(self, phase):
        deadline_s = time.monotonic() + PATIENCE_S
        while self.board.row("learner", 0).phase != phase:
            assert time.monotonic() < deadline_s, self.board.row("learner", 0)
            time.sleep(0.01)

    def error(self):
        return json.loads(self.run.error("learner", 0).read_text())

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.segment.unlink()
        self.segment.close()
        for bell in self.bells.values():
            bell.close()
        self.folder.release({})


@pytest.fixture
def host(config, tmp_path, monkeypatch):
    host = Host(config, tmp_path, monkeypatch)
    yield host
    host.close()


def test_a_child_knows_its_job_and_leaves_a_clean_row(host):
    code, out, err = host.finish("print(ctx.job, ctx.config.algo.num_envs, ctx.num_threads)")
    assert (code, out) == (0, "job-1 4 3\n"), err
    row = host.board.row("learner", 0)
    assert (row.state, row.phase) == ("ended", "ended")
    assert not host.run.error("learner", 0).exists()


@pytest.mark.parametrize(
    ("body", "code", "exception", "message"),
    [
        ("raise EnvError('reset failed')", 11, "EnvError", "reset failed"),
        ("raise NonFiniteError('reward', 3, 9)", 12, "NonFiniteError", "reward NaN env 3 step 9"),
        ("raise KeyError('x')", 1, "KeyError", "'x'"),
        ("raise RuntimeError()", 1, "RuntimeError", "RuntimeError"),
    ],
)
def test_an_exception_is_written_down_with_its_phase_and_decides_the_exit_code(
    host, body, code, exception, message
):
    returncode, _, err = host.finish(
        f"ctx.beat.phase('training/env_step')\nctx.last_seqs = lambda: {{'request': 5}}\n{body}"
    )
    assert returncode == code
    error = host.error()
    assert (error["exception"], error["message"]) == (exception, message)
    assert (error["phase"], error["exit_code"]) == ("training/env_step", code)
    assert (error["role"], error["rank"], error["blames"]) == ("learner", 0, None)
    assert error["last_seqs"] == {"request": 5}
    assert exception in error["traceback"]
    assert exception in err
    assert host.board.row("learner", 0).state == "failed"


def test_an_unknown_job_is_one_line_and_exit_code_six(host):
    code, _, err = host.finish("pass", job="nobody")
    assert code == 6
    assert err.splitlines() == ["learner-0: no job named 'nobody' in the registry"]


def test_a_signal_is_reported_and_the_child_goes_on_until_it_is_told(host):
    process = host.start("ctx.wait_job()")
    host.until_phase("startup/wait_job")
    host.bells["launcher"].drain()
    os.kill(process.pid, signal.SIGTERM)
    deadline_s = time.monotonic() + PATIENCE_S
    while host.board.row("learner", 0).signal != signal.SIGTERM:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert process.poll() is None
    host.beat.request_stop(1)
    host.bells["learner"].ring()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "Traceback" not in err
    assert host.board.row("learner", 0).state == "stopped"


def test_a_child_wakes_when_the_job_becomes_attachable(host):
    process = host.start("print(ctx.wait_job()['segments'])")
    host.until_phase("startup/wait_job")
    host.folder.write_json("job.json", {"segments": []})
    host.bells["learner"].ring()
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "[]\n")


def test_the_launchers_death_kills_a_child_until_it_begins_to_work(host):
    body = """
import ctypes
def at_the_launchers_death():
    signum = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(signum))  # PR_GET_PDEATHSIG
    return signum.value
before = at_the_launchers_death()
ctx.begin_work()
print(before, at_the_launchers_death())
"""
    code, out, err = host.finish(body)
    assert (code, out) == (0, f"{int(signal.SIGKILL)} {int(signal.SIGTERM)}\n"), err


def test_the_stacks_signal_prints_python_stacks_into_the_log(host):
    host.start(
        "def innermost():\n  time.sleep(100)\nctx.beat.phase('training/env_step')\ninnermost()"
    )
    host.until_phase("training/env_step")
    os.kill(host.board.row("learner", 0).pid, signal.SIGUSR1)
    deadline_s = time.monotonic() + PATIENCE_S
    while "in innermost" not in host.run.log("learner", 0).read_text():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
