"""A few deliberate faults in real jobs; `unilab-bench faults` runs all of them."""

import os
import subprocess
import sys

import pytest

from unilab_core.run.faults import VARIABLE, parse_fault
from unilab_core.tools.faults.audit import leftovers
from unilab_core.tools.faults.cases import ALGOS, sweep
from unilab_core.tools.faults.tiny_job import TinyJob
from unilab_core.tools.faults.watch import run_case

pytest.importorskip("gymnasium")
pytestmark = [pytest.mark.e2e, pytest.mark.serial]

CASES = {
    (case.algo, case.row, case.fault.role, case.fault.phase, case.fault.action): case
    for case in sweep(ALGOS, 0)
}


@pytest.mark.parametrize(
    "key",
    [
        ("sac", "F01", "collector", "P4e", "kill"),
        ("appo", "F02", "learner", "P4d", "kill"),
        ("sac", "F04", "launcher", "P4a", "kill"),
        ("sac", "F09", "collector", "P4a", "stop"),
        ("appo", "F16", "launcher", "P0", "enospc"),
        ("sac", "F18", "learner", "P5", "enospc"),
    ],
    ids=lambda key: "-".join(key),
)
def test_a_fault_ends_as_promised_and_leaves_nothing(key, tmp_path):
    point = run_case(CASES[key], tmp_path)
    assert point.violations == [], point.output


def test_the_audit_notices_what_is_left(tmp_path):
    job = TinyJob(folder=tmp_path, algo="sac")
    assert leftovers(job) == []
    partial = tmp_path / "runs" / "0000" / "checkpoints" / ".checkpoint_00000010.pt.7.tmp"
    partial.parent.mkdir(parents=True)
    partial.write_text("half")
    (job.registry / "faults").mkdir(parents=True)
    (job.registry / "faults" / "job.json").write_text("{}")
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=job.environ()
    )
    try:
        found = "\n".join(leftovers(job))
    finally:
        sleeper.communicate()
    assert f"process {sleeper.pid} is alive" in found
    assert "temporary file 0000/checkpoints/.checkpoint_00000010.pt.7.tmp" in found
    assert "registry: job.json" in found
    assert "registry: no owner.lock" in found


@pytest.mark.parametrize("role", ["unilab_collector", "unilab_learner"])
def test_a_child_refuses_a_value_that_is_no_fault_in_one_line(role):
    done = subprocess.run(
        [sys.executable, "-m", role, "--job", "nobody"],
        env={**os.environ, VARIABLE: "collector:P9:1:kill"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "phase: got 'P9'" in done.stderr


def test_the_launcher_refuses_it_before_anything_exists(tmp_path):
    job = TinyJob(folder=tmp_path, algo="ppo")
    launcher = job.start(fault="collector:P4e:1:kill")
    assert launcher.wait(timeout=60.0) == 2
    assert "cannot happen with ppo, only with flashsac, sac" in job.said()
    assert job.run_dirs() == []
    assert str(parse_fault("collector:P4e:1:kill")) in job.said()
