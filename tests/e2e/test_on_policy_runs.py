"""PPO and APPO as real processes: whole runs, resume, evaluation, and a child killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")
pytestmark = [pytest.mark.e2e, pytest.mark.serial]

ALGOS = ("ppo", "appo")
SHORT = ["algo.max_iterations=3", "algo.num_envs=4", "training.no_play=true"]


@pytest.fixture
def environ(tmp_path):
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    return {**os.environ, "UNILAB_RUNTIME_DIR": str(runtime), "CUDA_VISIBLE_DEVICES": ""}


def command(algo, folder, *rest):
    steps = "num_steps_per_env" if algo == "ppo" else "steps_per_env"
    return [
        sys.executable, "-m", "unilab_core.launch", "--plain", "--algo", algo,
        "--task", "gym:Pendulum-v1", f"training.log_root={folder}", f"algo.{steps}=32", *SHORT,
        *rest,
    ]  # fmt: skip


def run_dirs(folder):
    return sorted(path.parent for path in Path(folder).rglob("run_config.json"))


def segments_of(run_dir):
    run_id = json.loads((run_dir / "run_config.json").read_text())["run_id"]
    return list(Path("/dev/shm").glob(f"ul-{run_id}-*"))


@pytest.mark.parametrize("algo", ALGOS)
def test_a_run_trains_resumes_and_can_be_evaluated(algo, tmp_path, environ):
    logs = tmp_path / "logs"
    done = subprocess.run(
        command(algo, logs), env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run_dir,) = run_dirs(logs)
    log_name = "rsl_rl_ppo" if algo == "ppo" else "appo"
    assert run_dir.parent == logs / log_name / "gym_Pendulum-v1"
    assert run_dir.name.endswith("_gym")
    summary = json.loads((run_dir / "run_summary.json").read_text())
    assert (summary["status"], summary["completed_iterations"]) == ("completed", 3)
    assert segments_of(run_dir) == []

    resumed = [
        sys.executable, "-m", "unilab_core.launch", "--plain", "--resume", str(run_dir),
        "algo.max_iterations=5",
    ]  # fmt: skip
    done = subprocess.run(resumed, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    newest = next(path for path in run_dirs(logs) if path != run_dir)
    summary = json.loads((newest / "run_summary.json").read_text())
    assert summary["completed_iterations"] == 5
    assert summary["total_env_steps"] >= 5 * 32 * 4

    judged = [sys.executable, "-m", "unilab_core.tools.eval_cli", str(newest), "--json"]
    for extra in ([], ["--checkpoint", "5"]):
        done = subprocess.run(
            [*judged, *extra], env=environ, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout.splitlines()[-1])
        assert report["task"] == "gym:Pendulum-v1"
        assert report["episodes"] == 20
        assert -2000.0 < report["mean_return"] < 0.0


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("victim", ["collector", "learner"])
def test_a_killed_child_ends_the_job_by_name_and_leaves_nothing(algo, victim, tmp_path, environ):
    logs = tmp_path / "logs"
    endless = command(algo, logs, "algo.max_iterations=1000000")
    launcher = subprocess.Popen(
        endless, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        for line in launcher.stdout:
            if line.startswith("iteration"):
                break
        os.kill(_child(launcher.pid, f"unilab_{victim}"), signal.SIGKILL)
        output = launcher.stdout.read()
        assert launcher.wait(60) == 10, output
    finally:
        if launcher.poll() is None:
            launcher.kill()
    assert victim in output
    assert "SIGKILL" in output
    (run_dir,) = run_dirs(logs)
    assert segments_of(run_dir) == []


def _child(parent, module):
    """Process id of the launcher's child that runs `module`."""
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            if module in Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0"):
                return int(pid)
        time.sleep(0.1)
    raise AssertionError(f"no {module} below process {parent}")
