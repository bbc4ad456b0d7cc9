"""unilab-soak around real training runs: one that passes, and ones that must not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")
pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 240.0
TINY = {
    "sac": ("algo.learning_starts=8", "algo.actor_hidden_dim=[16]", "algo.critic_hidden_dim=[16]"),
    "ppo": ("algo.num_envs=4", "algo.num_steps_per_env=32"),
    "appo": ("algo.num_envs=4", "algo.steps_per_env=32"),
}


class Soak:
    """One soak of a tiny job on gym:Pendulum-v1."""

    def __init__(self, folder):
        self.folder = folder
        self.out = folder / "soak"
        self.process = None

    def start(self, algo, *settings, options=()):
        command = [
            sys.executable, "-m", "unilab_core.tools.soak.cli", "--out", str(self.out),
            "--sample-interval-s", "1", *options, "--",
            sys.executable, "-m", "unilab_core.launch", "--plain", "--algo", algo,
            "--task", "gym:Pendulum-v1", f"training.log_root={self.folder / 'logs'}",
            "training.no_play=true", "algo.max_iterations=10000000", *TINY[algo], *settings,
        ]  # fmt: skip
        environ = {
            **os.environ, "UNILAB_RUNTIME_DIR": str(self.folder / "registry"),
            "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "",
        }  # fmt: skip
        self.process = subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        return self.process

    def finish(self):
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, self.artifact()

    def artifact(self):
        return json.loads((self.out / "soak.json").read_text())

    def moving_pid(self, role):
        """The role's process, once its board row has moved."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            time.sleep(0.5)
            samples = self.artifact()["samples"] if (self.out / "soak.json").exists() else []
            if samples and any(any(row[:2]) for row in samples[-1]["counters"] or ()):
                rows = samples[-1]["process"]["processes"]
                return next(p["pid"] for p in rows if f"-m unilab_{role} " in p["command"])
        raise AssertionError("training never moved")


@pytest.fixture
def soak(tmp_path):
    (tmp_path / "registry").mkdir(mode=0o700)
    soak = Soak(tmp_path)
    yield soak
    if soak.process is not None and soak.process.poll() is None:
        soak.process.send_signal(signal.SIGTERM)
        soak.process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize(("algo", "seconds"), [("sac", 30), ("ppo", 8), ("appo", 8)])
def test_a_run_that_ends_by_its_clock_passes(soak, algo, seconds):
    soak.start(algo, f"training.max_wall_time_s={seconds}",
               options=("--min-duration-s", str(seconds)))  # fmt: skip
    code, out, artifact = soak.finish()
    assert code == 0, (out, artifact["failure_reason"])
    assert artifact["status"] == "passed"
    assert artifact["shutdown"]["classification"] == "normal_completion"
    assert artifact["run_summary"]["algo"] == algo
    assert artifact["run_dir"] == artifact["run_summary"]["log_dir"]
    resources = artifact["resource_summary"]
    assert resources["max_process_count"] >= 3  # launcher, collector, learner
    assert resources["max_shared_memory_bytes"] > 5_000_000
    counters = [sample["counters"] for sample in artifact["samples"]]
    assert any(row is not None and row[-1][0] > 0 for row in counters)
    assert artifact["post_shutdown"] == {"residual_processes": [], "residual_shared_memory": []}


@pytest.mark.parametrize("role", ["collector", "learner"])
def test_a_killed_role_is_the_classification(soak, role):
    soak.start("sac")
    os.kill(soak.moving_pid(role), signal.SIGKILL)
    code, out, artifact = soak.finish()
    assert code == 1, out
    assert artifact["returncode"] == 10
    assert artifact["failure_classification"] == f"{role}_failure"
    assert artifact["failure_reason"] == "return code 10"
    assert artifact["shutdown"][role]["signal_name"] == "SIGKILL"
    assert artifact["post_shutdown"]["residual_processes"] == []


def test_a_stopped_role_stands_still_on_the_board_though_logs_may_grow(soak):
    soak.start("sac", "training.warn_after_s=1", options=("--stale-progress-s", "4"))
    pid = soak.moving_pid("collector")
    os.kill(pid, signal.SIGSTOP)
    code, out, artifact = soak.finish()
    assert code == 1, out
    assert artifact["failure_reason"].startswith("no progress for ")
    # The launcher, ended by the soak, calls it what it was for it: a signal from outside.
    assert artifact["failure_classification"] in ("external_cancellation", "timeout/stale_tick")
    assert not Path(f"/proc/{pid}").exists()
    assert artifact["post_shutdown"]["residual_shared_memory"] == []


def test_shared_names_of_a_killed_launcher_are_a_leak(soak):
    soak.start("sac", options=("--post-shutdown-grace-s", "4"))
    collector = soak.moving_pid("collector")
    launcher = int(Path(f"/proc/{collector}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(launcher, signal.SIGKILL)
    code, out, artifact = soak.finish()
    assert code == 1, out
    assert artifact["returncode"] == -signal.SIGKILL
    assert artifact["failure_reason"].startswith("return code -9; left behind: ")
    left = artifact["post_shutdown"]["residual_shared_memory"]
    assert len(left) == 5
    environ = {**os.environ, "UNILAB_RUNTIME_DIR": str(soak.folder / "registry"),
               "PYTHONPATH": str(ROOT)}  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "unilab_core.launch", "gc"], env=environ, check=True, timeout=60
    )
    assert not any(Path("/dev/shm", name).exists() for name in left)
