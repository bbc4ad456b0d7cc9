"""FlashSAC as real processes: a run, its resume, the evaluation, the monitor's last view."""

import json
import os
import subprocess
import sys

import pytest

from unilab_core.telemetry.event_file import read_scalars
from unilab_core.telemetry.metric_schema import expected_tags, family_of

pytest.importorskip("gymnasium")
pytestmark = [pytest.mark.e2e, pytest.mark.serial]

PATIENCE_S = 300.0
TASKS = {
    "go2_joystick_flat": "mujoco",
    "gym:Pendulum-v1": "gym",
}
TINY = (
    "algo.num_envs=16",
    "algo.batch_size=64",
    "algo.updates_per_step=1",
    "algo.replay_buffer_n=256",
    "algo.learning_starts=8",
    "algo.actor_hidden_dim=16",
    "algo.critic_hidden_dim=16",
    "algo.actor_starts=10",
    "algo.max_iterations=60",
    "algo.save_interval=20",
    "training.no_play=true",
)


@pytest.fixture
def call(tmp_path):
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    environ = {**os.environ, "UNILAB_RUNTIME_DIR": str(runtime), "CUDA_VISIBLE_DEVICES": ""}

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("task", TASKS)
def test_a_run_trains_resumes_and_can_be_evaluated(task, tmp_path, call):
    launch = ("unilab_core.launch", "--plain")
    logs = f"training.log_root={tmp_path / 'logs'}"
    call(*launch, "--algo", "flashsac", "--task", task, logs, *TINY)
    parent = tmp_path / "logs" / "flash_sac" / task.replace(":", "_")
    (first,) = parent.iterdir()
    assert first.name.endswith(f"_{TASKS[task]}")
    summary = json.loads((first / "run_summary.json").read_text())
    assert (summary["status"], summary["completed_iterations"]) == ("completed", 60)
    assert "replay_ingress" in summary["runtime_manifest"]
    scalars = read_scalars(first)
    named = {tag for tag in scalars if family_of(tag) is None}
    # Short runs may end no episode, and then have no figures of episodes.
    optional = {"Train/mean_reward", "Train/mean_episode_length", "Episode/timeout_rate"}
    assert named - optional == expected_tags("flashsac") - optional | {"Train/reward_scale_std"}

    call(*launch, "--resume", str(first), "algo.max_iterations=80", logs)
    second = next(path for path in parent.iterdir() if path != first)
    summary = json.loads((second / "run_summary.json").read_text())
    assert summary["completed_iterations"] == 80

    for extra in ((), ("--checkpoint", "80")):
        report = call("unilab_core.tools.eval_cli", str(second), "--json", *extra)
        judged = json.loads(report.splitlines()[-1])
        assert judged["task"] == task
    view = json.loads(call("unilab_monitor", str(second), "--once", "--json"))
    assert (view["algo"], view["iteration"]) == ("flashsac", 80)
