"""Garbage collection takes what is proven dead, and nothing else."""

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from unilab_ipc.errors import SegmentNotReady
from unilab_ipc.gc import GcReport, collect_garbage
from unilab_ipc.heartbeat import board_dims
from unilab_ipc.memory import create_segment, open_segment
from unilab_ipc.metric_queue import ring_dims
from unilab_ipc.names import new_run_id, segment_name
from unilab_ipc.registry import JobFolder, list_jobs
from unilab_ipc.segments import HEARTBEAT, METRIC_QUEUE

pytestmark = pytest.mark.serial

Spawn = Callable[..., subprocess.Popen[str]]

RUN = (
    "import sys\n"
    "from unilab_ipc.heartbeat import board_dims\n"
    "from unilab_ipc.memory import create_segment\n"
    "from unilab_ipc.metric_queue import ring_dims\n"
    "from unilab_ipc.names import segment_name\n"
    "from unilab_ipc.registry import JobFolder\n"
    "from unilab_ipc.segments import HEARTBEAT, METRIC_QUEUE\n"
    "run_id = sys.argv[1]\n"
    "folder = JobFolder.claim('job-' + run_id, {})\n"
    "folder.write_json('launch.json', {'run_id': run_id})\n"
    "a = create_segment(HEARTBEAT, segment_name(run_id, 'heartbeat', 0), board_dims(1))\n"
    "b = create_segment(METRIC_QUEUE, segment_name(run_id, 'learner_metrics', 0),\n"
    "                   ring_dims(1024))\n"
    "print('up', flush=True)\n"
    "sys.stdin.read()\n"
)


@pytest.fixture
def other_run_id() -> Iterator[str]:
    run_id = new_run_id()
    yield run_id
    for name in os.listdir("/dev/shm"):
        if name.startswith(f"ul-{run_id}-"):
            os.unlink(f"/dev/shm/{name}")


def start_run(spawn: Spawn, run_id: str) -> subprocess.Popen[str]:
    child = spawn(RUN, run_id)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    return child


def of_run(report: GcReport, run_id: str) -> list[str]:
    return [name for run in report.runs if run["run_id"] == run_id for name in run["names"]]


def names_in_shm(run_id: str) -> list[str]:
    return sorted(name for name in os.listdir("/dev/shm") if f"-{run_id}-" in name)


def test_a_killed_run_is_collected_with_its_job_and_a_live_one_is_not(
    spawn: Spawn, run_id: str, other_run_id: str
) -> None:
    dead, _live = start_run(spawn, run_id), start_run(spawn, other_run_id)
    dead.kill()
    dead.wait()
    report = collect_garbage()
    run = next(run for run in report.runs if run["run_id"] == run_id)
    assert run == {
        "run_id": run_id,
        "job": f"job-{run_id}",
        "names": [f"/ul-{run_id}-hb-0", f"/ul-{run_id}-lm-0"],
    }
    assert names_in_shm(run_id) == []
    assert f"job-{run_id}" in report.folders
    assert of_run(report, other_run_id) == []
    assert len(names_in_shm(other_run_id)) == 2
    skipped = {item["name"]: item["reason"] for item in report.skipped}
    assert "live process" in skipped[f"/ul-{other_run_id}-hb-0"]


def test_a_live_run_of_another_runtime_directory_is_not_touched(
    spawn: Spawn, run_id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    start_run(spawn, run_id)
    monkeypatch.setenv("UNILAB_RUNTIME_DIR", f"{tmp_path}/other")
    collect_garbage()
    assert len(names_in_shm(run_id)) == 2


def test_a_dry_run_removes_nothing_and_reports_the_same(spawn: Spawn, run_id: str) -> None:
    child = start_run(spawn, run_id)
    child.kill()
    child.wait()
    dry = collect_garbage(dry_run=True)
    assert len(names_in_shm(run_id)) == 2
    assert of_run(dry, run_id) == of_run(collect_garbage(), run_id)
    assert names_in_shm(run_id) == []
    assert of_run(collect_garbage(), run_id) == []


def test_attached_processes_do_not_keep_a_dead_run_alive(spawn: Spawn, run_id: str) -> None:
    child = start_run(spawn, run_id)
    board = open_segment(HEARTBEAT, segment_name(run_id, "heartbeat", 0), board_dims(1))
    child.kill()
    child.wait()
    assert len(of_run(collect_garbage(), run_id)) == 2
    assert int(board.view["stop_level"][()]) == 0


def test_half_made_and_damaged_objects_of_dead_runs_are_collected(run_id: str) -> None:
    for letters, raw in (("is", b""), ("ri", b"garbage"), ("zz", bytes(4096))):
        with open(f"/dev/shm/ul-{run_id}-{letters}-0", "wb") as file:
            file.write(raw)
    assert len(of_run(collect_garbage(), run_id)) == 3
    assert names_in_shm(run_id) == []


def test_one_held_object_protects_its_whole_run(run_id: str) -> None:
    segment = create_segment(
        METRIC_QUEUE, segment_name(run_id, "learner_metrics", 0), ring_dims(1024)
    )
    open(f"/dev/shm/ul-{run_id}-is-0", "wb").close()
    report = collect_garbage()
    assert len(names_in_shm(run_id)) == 2
    skipped = {item["name"]: item["reason"] for item in report.skipped}
    assert skipped[f"/ul-{run_id}-is-0"] == "its run is alive"
    segment.close()
    assert len(of_run(collect_garbage(), run_id)) == 2


@pytest.mark.parametrize(
    "step", ["fcntl.flock", "os.fchmod", "os.posix_fallocate", "mmap.mmap", "memory._publish"]
)
def test_a_creator_killed_at_any_step_leaves_something_that_is_collected(
    spawn: Spawn, run_id: str, step: str
) -> None:
    child = spawn(
        "import fcntl, mmap, os, signal, sys\n"
        "from unilab_ipc import memory\n"
        "from unilab_ipc.heartbeat import board_dims\n"
        "from unilab_ipc.segments import HEARTBEAT\n"
        "owner, name = sys.argv[2].split('.')\n"
        "die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "setattr(globals()[owner], name, die)\n"
        "memory.create_segment(HEARTBEAT, sys.argv[1], board_dims(1))\n",
        segment_name(run_id, "heartbeat", 0),
        step,
    )
    assert child.wait() == -9
    assert len(names_in_shm(run_id)) == 1
    with pytest.raises(SegmentNotReady):
        open_segment(HEARTBEAT, segment_name(run_id, "heartbeat", 0), board_dims(1))
    assert len(of_run(collect_garbage(), run_id)) == 1
    create_segment(HEARTBEAT, segment_name(run_id, "heartbeat", 0), board_dims(1))


def test_names_of_others_are_never_looked_at(run_id: str) -> None:
    path = f"/dev/shm/ul-{run_id}-is-0.backup"
    open(path, "wb").close()
    try:
        collect_garbage()
        assert os.path.exists(path)
    finally:
        os.unlink(path)


def test_symlinks_fifos_and_directories_are_reported_not_removed(run_id: str) -> None:
    names = [f"ul-{run_id}-{letters}-0" for letters in ("is", "ri", "rr")]
    os.symlink("/dev/null", f"/dev/shm/{names[0]}")
    os.mkfifo(f"/dev/shm/{names[1]}", 0o600)
    os.mkdir(f"/dev/shm/{names[2]}")
    try:
        report = collect_garbage()
        assert of_run(report, run_id) == []
        assert {item["name"] for item in report.skipped} >= {"/" + name for name in names}
    finally:
        os.rmdir(f"/dev/shm/{names[2]}")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the owner")
def test_objects_of_another_user_are_reported_not_removed(run_id: str) -> None:
    path = f"/dev/shm/ul-{run_id}-is-0"
    open(path, "wb").close()
    os.chown(path, 12345, -1)
    report = collect_garbage()
    assert os.path.exists(path)
    skipped = {item["name"]: item["reason"] for item in report.skipped}
    assert skipped[f"/ul-{run_id}-is-0"] == "belongs to uid 12345"


def test_a_report_is_plain_json(run_id: str) -> None:
    open(f"/dev/shm/ul-{run_id}-is-0", "wb").close()
    report = collect_garbage(dry_run=True).to_json()
    assert set(report) >= {"objects", "runs", "skipped"}
    assert report["objects"] == sum(len(run["names"]) for run in report["runs"])


def test_the_job_of_a_live_claim_is_left_alone() -> None:
    JobFolder.claim("go2", {})
    assert collect_garbage().folders == []
    assert list_jobs()[0].state == "starting"


@pytest.mark.e2e
def test_collectors_and_creators_race_without_harm(spawn: Spawn, run_id: str) -> None:
    collector = spawn(
        "from unilab_ipc.gc import collect_garbage\n"
        "print('up', flush=True)\n"
        "while True: collect_garbage()\n"
    )
    assert collector.stdout is not None
    collector.stdout.readline()
    for number in range(300):
        name = segment_name(run_id, "heartbeat", number)
        segment = create_segment(HEARTBEAT, name, board_dims(1))
        # The name must still lead to the creator's memory, however the collector interfered.
        segment.view["stop_level"][()] = number
        found = open_segment(HEARTBEAT, name, board_dims(1))
        assert int(found.view["stop_level"][()]) == number
        segment.unlink()
        segment.close()
    assert collector.poll() is None
    collector.kill()
