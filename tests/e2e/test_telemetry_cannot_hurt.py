"""Telemetry that cannot hurt (F19, F27, F28): real trainings beside bad disks and many monitors.

Nothing here asserts a speed: training must go on (its iterations advance while the disk is full),
what was lost must be counted where a person looks, and the end must be clean.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 180.0
TINY = (
    "algo.num_envs=16", "algo.batch_size=64", "algo.updates_per_step=1",
    "algo.replay_buffer_n=256", "algo.learning_starts=4", "algo.actor_hidden_dim=[16]",
    "algo.critic_hidden_dim=[16]", "training.no_play=true", "training.export_onnx=false",
)  # fmt: skip

BAD_EVENT_FILES = """
import os, time
import unilab_core.telemetry.event_file as events
mode = os.environ["UNILAB_TEST_EVENTS"]
def append(self, data):
    if mode == "full":
        raise OSError(28, "No space left on device")
    if mode == "slow":
        time.sleep(1000)
    raise SystemExit  # "dead": ends the thread that writes
if mode == "read_only":
    def refuse(run_dir):
        raise OSError(30, "Read-only file system")
    events._create = refuse
else:
    events.EventFile._append = append
"""


class Job:
    """One real SAC run."""

    def __init__(self, folder, logs=None, **environ):
        self.logs = logs or folder / "logs"
        self.environ = {
            **os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "",
            "UNILAB_RUNTIME_DIR": str(folder / "registry"), **environ,
        }  # fmt: skip
        self.process = None

    def start(self, *settings):
        words = ("--plain", "--algo", "sac", "--task", "go2_joystick_flat", "--job", "t", *TINY)
        self.process = self.popen(
            "unilab_core.launch", *words, f"training.log_root={self.logs}", *settings
        )
        return self

    def popen(self, *words, **streams):
        streams = streams or {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(
            [sys.executable, "-m", *words], env=self.environ, stdin=subprocess.DEVNULL, text=True,
            **streams,
        )  # fmt: skip

    def look(self):
        monitor = self.popen(
            "unilab_monitor", "t", "--json", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        out, _ = monitor.communicate(timeout=PATIENCE_S)
        return json.loads(out) if monitor.returncode == 0 else {}

    def until(self, condition):
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            seen = self.look()
            if seen and condition(seen):
                return seen
            assert self.process.poll() is None, self.process.stdout.read()
            assert time.monotonic() < deadline_s, seen
            time.sleep(0.2)

    def finish(self):
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out

    @property
    def run_dir(self):
        return next((self.logs / "sac" / "go2_joystick_flat").iterdir())

    def summary(self):
        return json.loads((self.run_dir / "run_summary.json").read_text())

    def log(self):
        return (self.run_dir / "logs" / "learner-0.log").read_text()

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def start(tmp_path):
    jobs = []

    def start(*settings, **environ):
        jobs.append(Job(tmp_path, **environ))
        return jobs[-1].start(*settings)

    yield start
    for job in jobs:
        job.close()


@pytest.mark.parametrize("mode", ["full", "read_only", "slow", "dead"])
def test_f19_an_event_file_that_refuses_hangs_or_dies_costs_records_only(tmp_path, start, mode):
    (tmp_path / "sitecustomize.py").write_text(BAD_EVENT_FILES)
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    job = start("algo.max_iterations=150", PYTHONPATH=path, UNILAB_TEST_EVENTS=mode)
    code, out = job.finish()
    assert code == 0, out
    summary = job.summary()
    assert summary["completed_iterations"] == 150
    assert summary["dropped_records"] > 0
    assert job.log().count("cannot be written, training goes on") == (mode in ("full", "read_only"))
    assert list((job.run_dir / "checkpoints").glob("checkpoint_*.pt"))


def test_f28_five_monitors_and_a_storm_of_others_change_nothing(start):
    job = start("algo.max_iterations=100000")
    first = job.until(lambda seen: (seen["iteration"] or 0) >= 5)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    watching = [job.popen("unilab_monitor", "t", "--plain", **quiet) for _ in range(5)]
    storm = [job.popen("unilab_monitor", "t", "--json", **quiet) for _ in range(10)]
    for index, monitor in enumerate(storm):
        if index % 2:
            monitor.kill()  # some leave in the middle of attaching
        monitor.wait()
    later = job.until(lambda seen: seen["iteration"] >= first["iteration"] + 50)
    for monitor in watching:
        assert monitor.poll() is None
        monitor.kill()
        monitor.wait()
    assert [row["pid"] for row in later["processes"]] == [row["pid"] for row in first["processes"]]
    job.process.terminate()
    code, out = job.finish()
    assert code == 143, out
    assert job.summary()["dropped_records"] == 0
    assert "Traceback" not in out


FULL_DISK = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_telemetry_cannot_hurt import Job
folder = Path(sys.argv[2])
job = Job(folder, logs=Path(sys.argv[3])).start("algo.max_iterations=100000")
first = job.until(lambda seen: (seen["iteration"] or 0) >= 5)
filler = open(job.logs / "filler", "wb", buffering=0)
try:
    while True:
        filler.write(bytes(1 << 16))
except OSError:
    pass
lost = job.until(lambda seen: seen["dropped"] > 0)
later = job.until(lambda seen: seen["iteration"] >= lost["iteration"] + 50)
os.unlink(job.logs / "filler")
filler.close()
job.process.terminate()
code, out = job.finish()
log = job.log()
print(json.dumps({
    "code": code, "out": out[-2000:], "shown": lost["dropped"], "summary": job.summary(),
    "warnings": log.count("cannot be written, training goes on"),
}))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_f19_a_disk_that_is_full_for_a_while_costs_records_and_is_shown(tmp_path):
    mounted = tmp_path / "disk"
    mounted.mkdir()
    mount = f"mount -t tmpfs -o size=300m tmpfs {mounted}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-c",
         FULL_DISK, str(Path(__file__).parent), str(tmp_path), str(mounted)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=2 * PATIENCE_S,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["code"] == 143, told["out"]
    assert told["shown"] > 0
    assert told["warnings"] == 1
    assert told["summary"]["dropped_records"] >= told["shown"]
    assert told["summary"]["saved_iteration"] is not None
