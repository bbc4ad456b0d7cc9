"""A reward that is NaN in a real job: one transition is lost, or the job stops with a dump."""

import json
import os
import subprocess
import sys

import pytest

from unilab_core.run.faults import VARIABLE

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

FAULT = "collector:P4a:25:nan"
"""The 25th step of the environments: environment 0, vector step 24."""
OFF_POLICY = ["algo.learning_starts=32", "algo.batch_size=32", "algo.max_iterations=40"]
SETTINGS = {"sac": OFF_POLICY, "ppo": ["algo.max_iterations=4"], "appo": ["algo.max_iterations=4"]}


@pytest.fixture
def environ(tmp_path):
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    return {
        **os.environ,
        VARIABLE: FAULT,
        "UNILAB_RUNTIME_DIR": str(runtime),
        "CUDA_VISIBLE_DEVICES": "",
    }


def train(algo, run_dir, environ, *settings):
    command = [
        sys.executable, "-m", "unilab_core.launch", "--plain", "--algo", algo,
        "--task", "go2_joystick_flat", f"training.log_dir={run_dir}", "training.no_play=true",
        "training.export_onnx=false", "algo.num_envs=16", *SETTINGS[algo], *settings,
    ]  # fmt: skip
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
    return done, json.loads((run_dir / "run_summary.json").read_text())


@pytest.mark.parametrize("algo", SETTINGS)
def test_one_transition_is_dropped_counted_and_said_and_training_goes_on(algo, tmp_path, environ):
    run_dir = tmp_path / "run"
    done, summary = train(algo, run_dir, environ, "training.nan_guard.policy=drop_episode")
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary["status"] == "completed"
    assert summary["dropped_transitions"] == {"reward": 1}
    log = (run_dir / "logs" / "collector-0.log").read_text()
    assert "dropped 1 of 16 transitions: reward NaN env 0 step 24" in log


def test_a_stopped_job_names_the_owner_and_its_dump_can_be_watched(tmp_path, environ):
    run_dir = tmp_path / "run"
    done, summary = train("sac", run_dir, environ)
    assert done.returncode == 12, done.stdout + done.stderr
    assert summary["status"] == "failed"
    assert "reward NaN env 0 step 24" in done.stdout + done.stderr
    (dump,) = (run_dir / "nan_guard").iterdir()
    shown = subprocess.run(
        [sys.executable, "-m", "unilab_core.tools.eval_cli", "--replay-nan", str(dump), "--video"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if shown.returncode != 0 and "libosmesa" in shown.stdout + shown.stderr:
        pytest.skip("neither EGL nor OSMesa on this machine")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "first value that is not finite: reward in step 24" in shown.stdout
    assert dump.with_suffix(".mp4").stat().st_size > 1000
