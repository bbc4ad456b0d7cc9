"""A benchmark that is stopped takes the training it has started with it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

TINY = [
    "algo.num_envs=4",
    "algo.batch_size=8",
    "algo.actor_hidden_dim=[8]",
    "algo.critic_hidden_dim=[8]",
]


def children_of(pid):
    """Process ids of the children of a process, from the kernel."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize(
    "words",
    [
        ["walk", "--seeds", "1", "--train-s", "600", "--interval-s", "600"],
        ["watchers", "--blocks", "50"],
    ],
)
def test_sigterm_to_a_benchmark_ends_launcher_collector_and_learner(tmp_path, words):
    command = [sys.executable, "-m", "unilab_core.tools.bench.cli", *words, "--algo", "sac", *TINY]
    bench = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)})
    try:
        deadline_s = time.monotonic() + 120.0
        roles = []
        while len(roles) < 2:
            assert bench.poll() is None
            assert time.monotonic() < deadline_s, "the job did not start"
            launchers = children_of(bench.pid)
            roles = [pid for launcher in launchers for pid in children_of(launcher)]
            time.sleep(0.1)
        run_id = json.loads(next(tmp_path.rglob("launch.json")).read_text())["run_id"]
        assert [name for name in os.listdir("/dev/shm") if run_id in name]
        bench.send_signal(signal.SIGTERM)
        assert bench.wait(timeout=90.0) == 128 + signal.SIGTERM
    finally:
        bench.kill()
        bench.wait()
    assert [pid for pid in (*launchers, *roles) if Path(f"/proc/{pid}").exists()] == []
    assert [name for name in os.listdir("/dev/shm") if run_id in name] == []
