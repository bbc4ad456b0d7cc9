"""unilab-launch as a real process with fake children, in a registry and log root of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unilab_ipc.peers import process_start_ticks, process_state

FAKES = Path(__file__).parent / "fake_children"
ROOT = Path(__file__).parents[3]
TASK = "go2_joystick_flat"
PATIENCE_S = 60.0


class Launch:
    """One launcher with its own registry and log root."""

    def __init__(self, tmp_path):
        self.tmp_path = tmp_path
        self.registry = tmp_path / "registry"
        self.logs = tmp_path / "logs"
        self.started = []
        self.children = set()

    def environ(self, **extra):
        keep = {k: v for k, v in os.environ.items() if not k.startswith("UNILAB_")}
        return {
            **keep,
            # The fakes shadow the real children; everything else is this very tree.
            "PYTHONPATH": os.pathsep.join((str(FAKES), str(ROOT))),
            "UNILAB_RUNTIME_DIR": str(self.registry),
            "CUDA_VISIBLE_DEVICES": "",
            **extra,
        }

    def start(self, *args, job="job-1", **extra):
        settings = (f"training.log_root={self.logs}", "training.no_play=true", "algo.num_envs=4")
        base = ("--algo", "sac", "--task", TASK, "--job", job, *settings) if job else ()
        process = subprocess.Popen(
            (sys.executable, "-m", "unilab_core.launch", *base, *args),
            cwd=self.tmp_path,
            env=self.environ(**extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *args, job="job-1", **extra):
        process = self.start(*args, job=job, **extra)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    def command(self, *args):
        code, out, err = self.run(*args, job=None)
        return code, out, err

    def record(self, name, job="job-1"):
        path = self.registry / job / name
        return json.loads(path.read_text()) if path.is_file() else None

    def until(self, look, what):
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            found = look()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"never saw {what}")

    def running(self, job="job-1"):
        """Wait until the learner has made a few iterations; identities of all processes."""
        record = self.until(lambda: self.record("job.json", job), "job.json")
        self.until(lambda: self.list_jobs()[0]["state"] == "running", "a running job")
        log = Path(record["run_dir"]) / "logs"
        self.until(lambda: (log / "learner-0.log").exists(), "the learner's log")
        time.sleep(0.8)
        processes = {p["role"]: (p["pid"], p["start_ticks"]) for p in record["processes"]}
        self.children.update(processes.values())
        return processes, Path(record["run_dir"])

    @staticmethod
    def interrupt(process, times):
        """Ctrl-C by hand: the kernel merges signals that arrive in the same instant."""
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)

    def list_jobs(self):
        code, out, _ = self.command("list", "--json")
        assert code == 0
        return json.loads(out)["jobs"]

    def dead_runs(self):
        """What gc would remove of this test's runs; other runs of this machine are none of ours."""
        code, out, _ = self.command("gc", "--dry-run", "--json")
        assert code == 0
        known = registry_run_ids(self.registry)
        return [run for run in json.loads(out)["runs"] if run["run_id"] in known]

    def audit(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()
        for pid, ticks in self.children:
            self.until(lambda p=pid, t=ticks: gone(p, t), f"the end of process {pid}")


def gone(pid, ticks):
    return process_start_ticks(pid) != ticks or process_state(pid) == "Z"


def run_names(record):
    return [segment["name"] for segment in record["segments"]]


def exists(name):
    return Path("/dev/shm" + name).exists()


def registry_run_ids(registry):
    ids = set()
    for path in registry.glob("*/*.json"):
        data = json.loads(path.read_text())
        if isinstance(data.get("run_id"), str):
            ids.add(data["run_id"])
    return ids


def the_run_dir(out):
    return Path(re.search(r"^run directory: (.*)$", out, re.MULTILINE)[1])


@pytest.fixture
def launch(tmp_path):
    """A launcher per test, audited at its end: no process, no shared name, no live job is left."""
    launch = Launch(tmp_path)
    before = set(os.listdir("/dev/shm"))
    yield launch
    launch.audit()
    left = [n for n in set(os.listdir("/dev/shm")) - before if n.startswith("ul-")]
    mine = [n for n in left if n[3:11] in registry_run_ids(launch.registry)]
    assert mine == []
    assert not list(tmp_path.rglob("*.tmp"))
