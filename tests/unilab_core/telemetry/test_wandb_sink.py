"""W&B as a backend: a package that fails, hangs or crashes costs records and nothing else.

The package is a stand-in that the writing process imports; a last test uses the real one, offline.
"""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from unilab_core.config.training import TrainingConfig
from unilab_core.telemetry import wandb_sink
from unilab_core.telemetry.wandb_sink import WandbSink, init_arguments, process_command, run_info

FAKE = """
import json, os, time
from pathlib import Path
BEHAVIOUR = os.environ.get("FAKE_WANDB", "")
OUT = Path(os.environ["FAKE_WANDB_OUT"])

def note(**what):
    with OUT.open("a") as file:
        file.write(json.dumps(what) + "\\n")

class Settings:
    def __init__(self, **values):
        note(settings=values)

class Video:
    def __init__(self, path, format):
        self.path = path

class Run:
    def __init__(self, arguments):
        self.id, self.dir, self.url = arguments["id"], arguments["dir"], "https://example/run"
    def log(self, values, step=None):
        if BEHAVIOUR == "slow":
            time.sleep(0.2)
        if BEHAVIOUR == "crash" and step == 30:
            os._exit(9)
        note(log={key: getattr(value, "path", value) for key, value in values.items()}, step=step)
    def finish(self, exit_code=0):
        if BEHAVIOUR == "hang at the end":
            time.sleep(600)
        note(finish=exit_code)

def init(dir, settings, **arguments):
    if BEHAVIOUR == "fail":
        raise RuntimeError("api_key not configured (no-tty)\\nmore text")
    if BEHAVIOUR == "hang":
        time.sleep(600)
    note(init=arguments)
    return Run({"dir": dir, **arguments})

def teardown(exit_code=0):
    note(teardown=exit_code)
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """`fake(behaviour)` puts the stand-in first on the path of the writing process."""
    package = tmp_path / "fake"
    package.mkdir()
    (package / "wandb.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package), *(p for p in sys.path if p)]))
    monkeypatch.setenv("FAKE_WANDB_OUT", str(tmp_path / "calls"))

    def use(behaviour=""):
        monkeypatch.setenv("FAKE_WANDB", behaviour)

    use()
    return use


@pytest.fixture
def make_sink(tmp_path):
    sinks = []

    def make(**options):
        options = {"send_interval_s": 0.02, **options}
        sinks.append(WandbSink(tmp_path, {"project": "p", "id": "abc"}, **options))
        return sinks[-1]

    yield make
    for sink in sinks:
        sink._process.kill()
        sink._process.wait()
        sink._thread.join(10.0)


def calls(tmp_path):
    path = tmp_path / "calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_until(condition, limit_s=30.0):
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "never happened"
        time.sleep(0.01)


def test_every_record_arrives_in_order_and_the_run_is_finished(fake, make_sink, tmp_path):
    sink = make_sink()
    for step in range(10, 60, 10):
        sink.write(step, 1.0, {"Loss/actor": step / 2})
    assert sink.close(30.0)
    found = calls(tmp_path)
    assert found[0] == {
        "settings": {"console": "off", "silent": True, "disable_git": True, "disable_code": True}
    }
    assert found[1] == {"init": {"project": "p", "id": "abc"}}
    logged = [(call["step"], call["log"]) for call in found if "log" in call]
    assert logged == [(step, {"Loss/actor": step / 2}) for step in range(10, 60, 10)]
    assert found[-2:] == [{"finish": 0}, {"teardown": 0}]
    assert (sink.sent_count, sink.dropped_count) == (5, 0)
    info = run_info(tmp_path)
    assert (info["id"], info["project"], info["url"]) == ("abc", "p", "https://example/run")


def test_a_package_that_cannot_start_costs_records_and_is_said_once(fake, make_sink, caplog):
    fake("fail")
    sink = make_sink()
    assert sink._process.wait(30.0) == 1
    for step in range(200):
        sink.write(step, 1.0, {"a": 1.0})
        time.sleep(0.001)
    wait_until(lambda: sink._gone)
    sink.write(1000, 1.0, {"a": 1.0})
    assert not sink.close(5.0)
    assert sink.dropped_count + sink.sent_count == 201
    assert sink.dropped_count > 0
    assert sum("W&B gets nothing any more" in r.getMessage() for r in caplog.records) == 1


def test_a_crash_in_the_middle_costs_what_came_after(fake, make_sink, tmp_path):
    fake("crash")
    sink = make_sink()
    for step in (10, 20, 30, 40):
        sink.write(step, 1.0, {"a": 1.0})
    assert sink._process.wait(30.0) == 9
    assert [call["step"] for call in calls(tmp_path) if "log" in call] == [10, 20]
    sink.write(50, 1.0, {"a": 1.0})
    wait_until(lambda: sink._gone)
    assert not sink.close(5.0)
    assert sink.dropped_count >= 1


@pytest.mark.parametrize("behaviour", ["slow", "hang"])
def test_a_slow_package_never_blocks_the_caller(behaviour, fake, make_sink):
    fake(behaviour)
    sink = make_sink(queue_records=16)
    scalars = {f"metric_{k}": float(k) for k in range(200)}
    for step in range(500):  # far more than the pipe and the queue hold
        sink.write(step, 1.0, scalars)
        time.sleep(0.001)
    # The other side needs 100 s for these, or never takes any: a caller that waited would be there.
    assert sink.dropped_count > 0
    assert len(sink._queue) <= 16
    assert not sink.close(0.5)
    assert sink._process.poll() is not None


def test_an_upload_that_never_ends_is_given_up(fake, make_sink, tmp_path):
    fake("hang at the end")
    sink = make_sink()
    sink.write(1, 1.0, {"a": 1.0})
    wait_until(lambda: any("log" in call for call in calls(tmp_path)))
    assert not sink.close(1.0)
    assert sink._process.poll() is not None


@pytest.mark.parametrize("behaviour", ["", "hang", "hang at the end"])
def test_the_process_leaves_when_its_parent_is_killed(behaviour, fake, tmp_path):
    fake(behaviour)
    code = (
        "import sys, time; from pathlib import Path\n"
        "from unilab_core.telemetry.wandb_sink import WandbSink\n"
        f"sink = WandbSink(Path({str(tmp_path)!r}), {{'project': 'p', 'id': 'x'}})\n"
        "sink.write(1, 1.0, {'a': 1.0})\n"
        "print(sink._process.pid, flush=True); time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        child = int(parent.stdout.readline())
        wait_until(lambda: calls(tmp_path) or behaviour == "hang")
        time.sleep(1.0 if behaviour == "hang" else 0.0)  # it is somewhere inside init by then
        os.kill(parent.pid, signal.SIGKILL)
    finally:
        parent.wait(30)
        parent.stdout.close()
    wait_until(lambda: not _runs(child))


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_video_is_a_message_like_others(fake, tmp_path):
    messages = (
        {"init": {"project": "p", "id": "x", "resume": "allow"}},
        {"video": "/film.mp4", "step": 12},
        {"finish_s": 20},
    )
    import msgpack

    done = subprocess.run(
        process_command(tmp_path), input=b"".join(map(msgpack.packb, messages)), timeout=60
    )
    assert done.returncode == 0
    assert {"log": {"play_video": "/film.mp4"}, "step": 12} in calls(tmp_path)


def test_every_key_reaches_the_package():
    training = TrainingConfig(
        task_name="t", sim_backend="mujoco", logger="wandb", wandb_project="p", wandb_entity="e",
        wandb_group="g", wandb_job_type="j", wandb_name="n", wandb_tags=("a", "b"),
        wandb_notes="hello", wandb_mode="offline",
    )  # fmt: skip
    assert init_arguments(training, job="job", run_id="id", config={"algo": {}}) == {
        "project": "p", "entity": "e", "group": "g", "job_type": "j", "name": "n",
        "tags": ["a", "b"], "notes": "hello", "mode": "offline", "id": "id",
        "config": {"algo": {}},
    }  # fmt: skip


def test_keys_that_are_not_set_are_left_to_the_package_and_its_environment():
    training = TrainingConfig(task_name="t", sim_backend="mujoco", logger="wandb")
    found = init_arguments(training, job="go2-1", run_id="id", config={})
    assert found == {"project": "unilab", "name": "go2-1", "id": "id", "config": {}}


@pytest.mark.slow
def test_the_real_package_writes_an_offline_run(make_sink, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="pip install 'unilab-rl[wandb]'")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    arguments = {"project": "p", "id": "abc12345", "mode": "offline", "config": {"seed": 1}}
    sink = wandb_sink.WandbSink(tmp_path, arguments, send_interval_s=0.02)
    for step in range(1, 21):
        sink.write(step * 64, 1.0, {"Loss/actor": float(step), "Perf/total_fps": 100.0})
    assert sink.close(60.0)
    assert (sink.sent_count, sink.dropped_count) == (20, 0)
    (data,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert b"Loss/actor" in data.read_bytes()
    assert run_info(tmp_path)["id"] == "abc12345"
