"""SAC on go2_joystick_flat with the real launcher, collector, learner, evaluation and monitor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unilab_core.telemetry.event_file import read_scalars
from unilab_core.telemetry.metric_schema import expected_tags, spec
from unilab_ipc.peers import process_start_ticks, process_state

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

PATIENCE_S = 180.0
TINY = (
    "algo.num_envs=16",
    "algo.batch_size=64",
    "algo.updates_per_step=1",
    "algo.replay_buffer_n=256",
    "algo.learning_starts=4",
    "algo.actor_hidden_dim=[16]",
    "algo.critic_hidden_dim=[16]",
    "training.no_play=true",
)


class Job:
    """One real run in its own registry and log root."""

    def __init__(self, folder):
        self.folder = folder
        self.environ = {**os.environ, "UNILAB_RUNTIME_DIR": str(folder / "registry")}
        self.processes = []

    def command(self, *words):
        return [sys.executable, "-m", *words]

    def start(self, *settings):
        words = ("unilab_core.launch", "--plain", "--algo", "sac", "--task", "go2_joystick_flat")
        words += ("--job", "e2e", *TINY, f"training.log_root={self.folder / 'logs'}", *settings)
        process = subprocess.Popen(
            self.command(*words),
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        return process

    def finish(self, process):
        out, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out

    def call(self, *words):
        return subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def monitor(self):
        done = self.call("unilab_monitor", "e2e", "--once", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def steady(self):
        """Wait for some iterations; what the monitor sees then."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            seen = self.monitor()
            if seen is not None and (seen["iteration"] or 0) >= 5:
                return seen
            time.sleep(0.2)
        raise AssertionError("training never became steady")

    @property
    def run_dir(self):
        return next((self.folder / "logs" / "sac" / "go2_joystick_flat").iterdir())

    def dead_runs(self):
        done = self.call("unilab_core.launch", "gc", "--dry-run", "--json")
        return json.loads(done.stdout)["runs"]


def gone(pid, ticks):
    return process_start_ticks(pid) != ticks or process_state(pid) == "Z"


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    yield job
    for process in job.processes:
        if process.poll() is None:
            process.kill()
            process.communicate()


def scalars_of(run_dir):
    return read_scalars(run_dir)


def test_a_run_completes_with_every_artefact_and_resumes_where_it_ended(job):
    code, out = job.finish(job.start("algo.max_iterations=220", "algo.save_interval=100"))
    assert code == 0, out
    first = job.run_dir
    names = {path.name for path in first.iterdir()}
    assert {"run_config.json", "run_summary.json", "last_state.json", "policy.pt"} <= names
    assert len(list((first / "checkpoints").glob("checkpoint_*.pt"))) == 2
    summary = json.loads((first / "run_summary.json").read_text())
    assert summary["completed_iterations"] == 220
    assert summary["total_env_steps"] % 16 == 0
    manifest = summary["runtime_manifest"]
    assert manifest["replay_ingress"]["occupancy"] == 0
    assert manifest["inference_flight"]["queue_depth"] == 0
    assert manifest["replay_ingress"]["published_sequence"] * 16 == summary["total_env_steps"]

    scalars = scalars_of(first)
    # Episodes start at random ages, so that some have ended by now: every tag has had its cause.
    families = {tag for tag in scalars if tag.startswith(("reward/", "Episode_Termination/"))}
    assert set(scalars) - families == set(expected_tags("sac"))
    assert all(spec(tag).unit for tag in scalars)
    steps = [step for step, _ in scalars["Train/iteration"]]
    assert steps == sorted(set(steps))
    assert scalars["Train/iteration"][-1][1] == 220

    ended = job.monitor()
    assert (ended["state"], ended["iteration"]) == ("ended", 220)

    code, out = job.finish(
        job.start(f"algo.load_run={first}", "algo.resume=true", "algo.max_iterations=230")
    )
    assert code == 0, out
    second = max(first.parent.iterdir(), key=lambda path: path.stat().st_mtime)
    assert second != first
    resumed = scalars_of(second)["Train/iteration"]
    assert [value for _, value in resumed] == list(range(221, 231))
    assert resumed[0][0] > steps[-1]
    assert job.dead_runs() == []


@pytest.mark.parametrize("role", ["collector", "learner"])
def test_a_killed_child_is_named_and_nothing_is_left(job, role):
    process = job.start("algo.max_iterations=100000")
    seen = job.steady()
    pid = next(row["pid"] for row in seen["processes"] if row["role"] == role)
    assert seen["state"] == "running"
    os.kill(pid, signal.SIGKILL)
    code, out = job.finish(process)
    assert code == 10, out
    last = out.strip().splitlines()
    line = next(text for text in last if "SIGKILL" in text)
    assert role in line
    assert str(pid) in line
    assert job.dead_runs() == []
    ended = job.monitor()
    assert ended["state"] == "ended"
    assert "SIGKILL" in ended["reason"]


def test_a_killed_launcher_takes_its_children_and_gc_reports_exactly_that_run(job):
    process = job.start("algo.max_iterations=100000")
    seen = job.steady()
    children = [row for row in seen["processes"] if row["role"] != "launcher"]
    identities = [(row["pid"], process_start_ticks(row["pid"])) for row in children]
    record = json.loads((job.folder / "registry" / "e2e" / "job.json").read_text())
    process.kill()
    process.communicate()
    deadline_s = time.monotonic() + PATIENCE_S
    while not all(gone(*identity) for identity in identities):
        assert time.monotonic() < deadline_s, "a child outlived its launcher"
        time.sleep(0.05)
    mine = [run for run in job.dead_runs() if run["run_id"] == record["run_id"]]
    assert len(mine) == 1
    assert set(mine[0]["names"]) == {segment["name"] for segment in record["segments"]}
    done = job.call("unilab_core.launch", "gc", "--json")
    assert done.returncode == 0, done.stderr
    assert not any(Path("/dev/shm" + name).exists() for name in mine[0]["names"])


def test_killed_monitors_do_not_disturb_training(job):
    process = job.start("algo.max_iterations=300")
    job.steady()
    monitors = [
        subprocess.Popen(
            job.command("unilab_monitor", "e2e", "--plain"),
            env=job.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(2)
    ]
    time.sleep(1.0)
    for monitor in monitors:
        monitor.kill()
        monitor.wait()
    code, out = job.finish(process)
    assert code == 0, out


def test_a_term_that_its_parameters_do_not_fit_is_named_and_nothing_is_left(job):
    code, out = job.finish(
        job.start("env.rewards.contact.params.threshold_n=abc", "algo.max_iterations=10")
    )
    assert code == 2, out
    assert "env.rewards.contact" in out
    assert job.dead_runs() == []
