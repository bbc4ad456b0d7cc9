"""--debug and debuggers attached to running jobs, with real processes and fake children."""

import ctypes
import os
import shlex
import signal
import subprocess
import time

import pytest
from launch_rig import PATIENCE_S

from unilab_ipc.peers import tracer_pid

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000
"""Wait for a process that is no child of ours."""
IMPATIENT = ("training.warn_after_s=0.4", "training.hang_after_s=1", "--plain")


def ptrace(request, pid, *, stop_first=False):
    libc = ctypes.CDLL(None, use_errno=True)
    if stop_first:  # only a stopped process can be let go
        libc.ptrace(PTRACE_INTERRUPT, pid, None, None)
        os.waitpid(pid, WALL)
    if libc.ptrace(request, pid, None, None) != 0:
        pytest.skip(f"ptrace is not permitted here: {os.strerror(ctypes.get_errno())}")


@pytest.mark.parametrize("role", ["learner", "collector"])
def test_the_printed_command_runs_the_role_under_pdb(launch, role):
    process = launch.start("--debug", role, "algo.max_iterations=30", *IMPATIENT)
    seen = []
    for line in process.stdout:
        seen.append(line)
        if "-m pdb" in line:
            break
    words = shlex.split(seen[-1])
    at = words.index("pdb")
    assert words[at + 1 : at + 3] == ["-m", f"unilab_{role}"]
    time.sleep(3.0)  # three times the limit: nobody may call this a hang
    assert process.poll() is None
    debugged = subprocess.run(
        [*words[: at + 1], "-c", "continue", *words[at + 1 :]],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env={"PATH": os.environ["PATH"]}, cwd=launch.tmp_path,
    )  # fmt: skip
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, (out, err, debugged.stdout, debugged.stderr)
    assert "training completed: 30 iterations" in out
    assert "no progress" not in err
    assert "The program exited" in debugged.stdout


def test_a_debug_role_that_was_never_started_can_be_given_up(launch):
    process = launch.start("--debug", "learner")
    for line in process.stdout:
        if "-m pdb" in line:
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert launch.dead_runs() == []


def test_a_debugger_attached_to_a_standing_process_stops_the_clocks_until_it_leaves(launch):
    limits = ("training.warn_after_s=2", "training.hang_after_s=5", "--plain")
    process = launch.start("algo.max_iterations=100000", *limits, UNILAB_FAKE_COLLECTOR="hang")
    processes, _ = launch.running()
    pid = processes["collector"][0]
    ptrace(PTRACE_SEIZE, pid)
    assert tracer_pid(pid) == os.getpid()
    time.sleep(8.0)
    assert process.poll() is None
    ptrace(PTRACE_DETACH, pid, stop_first=True)
    assert tracer_pid(pid) == 0
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 13, err
    assert f"collector-0 has a debugger (pid {os.getpid()}): no time limits" in err
    assert "Python stacks of collector-0" in err


def test_stacks_of_a_missing_and_of_an_ended_job_are_exit_code_6(launch):
    code, _, err = launch.command("stacks", "nobody")
    assert (code, "no job named 'nobody'" in err) == (6, True)
    assert launch.run("algo.max_iterations=5")[0] == 0
    code, out, err = launch.command("stacks", "job-1")
    assert code == 6
    assert "job-1" in err
    assert "Traceback" not in out + err


def test_debug_and_detach_exclude_each_other(launch):
    code, _, err = launch.run("--debug", "learner", "--detach")
    assert code == 2
    assert "--debug waits for you" in err
