"""Job folders: exclusive claims, atomic records, states, and what is refused."""

import json
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from unilab_ipc.doorbell import Doorbell
from unilab_ipc.errors import IpcError, JobMissing, NameInUse, RecordInvalid
from unilab_ipc.registry import JobFolder, bury_dead_jobs, list_jobs, runtime_dir

Spawn = Callable[..., subprocess.Popen[str]]

OWNER = (
    "import sys\n"
    "from unilab_ipc.registry import JobFolder\n"
    "folder = JobFolder.claim(sys.argv[1], {'task': 't'})\n"
    "folder.write_json('launch.json', {'run_id': '0123abcd', 'run_dir': '/r', 'algo': 'sac'})\n"
    "if len(sys.argv) > 2: folder.write_json('job.json', {'run_id': '0123abcd'})\n"
    "print('claimed', flush=True)\n"
    "sys.stdin.read()\n"
)


def start_owner(spawn: Spawn, *args: str) -> subprocess.Popen[str]:
    child = spawn(OWNER, *args)
    assert child.stdout is not None
    assert child.stdout.readline() == "claimed\n"
    return child


def state_of(job: str) -> str:
    return next(info.state for info in list_jobs() if info.job == job)


def test_runtime_dir_is_made_private(runtime_dir_of_the_test: Path) -> None:
    before = os.umask(0)
    try:
        assert runtime_dir() == runtime_dir_of_the_test
    finally:
        os.umask(before)
    assert stat.S_IMODE(runtime_dir_of_the_test.stat().st_mode) == 0o700


def test_runtime_dir_defaults_to_a_directory_per_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("UNILAB_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert runtime_dir() == tmp_path / f"unilab-{os.geteuid()}"


def test_an_open_runtime_dir_is_refused_with_the_remedy(runtime_dir_of_the_test: Path) -> None:
    runtime_dir_of_the_test.mkdir()
    runtime_dir_of_the_test.chmod(0o755)
    with pytest.raises(ValueError, match=f"chmod 700 {runtime_dir_of_the_test}"):
        runtime_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the owner")
def test_a_runtime_dir_of_somebody_else_is_refused(runtime_dir_of_the_test: Path) -> None:
    runtime_dir_of_the_test.mkdir(mode=0o700)
    os.chown(runtime_dir_of_the_test, 12345, -1)
    with pytest.raises(ValueError, match="uid 12345"):
        runtime_dir()


def test_a_planted_symlink_in_place_of_the_default_dir_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("UNILAB_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / f"unilab-{os.geteuid()}").symlink_to(tmp_path / "target")
    with pytest.raises(ValueError, match="not a directory"):
        runtime_dir()


def test_a_life_from_claim_to_pointer() -> None:
    folder = JobFolder.claim("go2", {"task": "t"})
    assert (state_of("go2"), folder.is_live()) == ("starting", True)
    folder.write_json("launch.json", {"run_id": "0123abcd"})
    Doorbell.create(folder.bell_path("learner", 0)).close()
    folder.write_json("job.json", {"run_dir": "/r"})
    assert state_of("go2") == "running"
    folder.release({"state": "ended", "reason": "done"})
    info = list_jobs()[0]
    assert (info.state, info.record) == ("ended", None)
    assert info.ended == {"state": "ended", "reason": "done"}
    assert sorted(os.listdir(folder.path)) == ["ended.json", "owner.lock"]
    assert not JobFolder.open("go2").is_live()


def test_records_are_private_files(runtime_dir_of_the_test: Path) -> None:
    before = os.umask(0)
    try:
        folder = JobFolder.claim("go2", {})
        folder.write_json("job.json", {})
        Doorbell.create(folder.bell_path("learner", 0)).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    for name in os.listdir(folder.path):
        assert stat.S_IMODE((folder.path / name).stat().st_mode) == 0o600


def test_a_second_claim_names_the_live_owner(spawn: Spawn) -> None:
    owner = start_owner(spawn, "go2", "attachable")
    with pytest.raises(NameInUse) as caught:
        JobFolder.claim("go2", {})
    assert caught.value.pid == owner.pid
    assert caught.value.started_utc[:2] == "20"
    assert state_of("go2") == "running"
    assert JobFolder.open("go2").read_json("job.json") == {"run_id": "0123abcd"}


def test_this_process_cannot_claim_its_own_job_twice() -> None:
    JobFolder.claim("go2", {})
    with pytest.raises(NameInUse, match=str(os.getpid())):
        JobFolder.claim("go2", {})


def test_a_killed_owner_leaves_a_dead_job_that_the_next_claim_reclaims(spawn: Spawn) -> None:
    owner = start_owner(spawn, "go2", "attachable")
    owner.kill()
    owner.wait()
    assert state_of("go2") == "dead"
    assert not JobFolder.open("go2").is_live()
    folder = JobFolder.claim("go2", {})
    assert os.listdir(folder.path) == ["owner.lock"]
    assert folder.owner()["pid"] == os.getpid()


def test_a_stopped_owner_still_owns(spawn: Spawn) -> None:
    owner = start_owner(spawn, "go2")
    os.kill(owner.pid, 19)
    os.waitid(os.P_PID, owner.pid, os.WSTOPPED | os.WNOWAIT)
    with pytest.raises(NameInUse):
        JobFolder.claim("go2", {})
    assert state_of("go2") == "starting"


def test_a_reader_that_probes_the_lock_does_not_refuse_a_claim() -> None:
    JobFolder.claim("go2", {}).release({})
    stop = threading.Event()

    def probe() -> None:
        while not stop.is_set():
            list_jobs()

    reader = threading.Thread(target=probe)
    reader.start()
    try:
        for _ in range(50):
            JobFolder.claim("go2", {}).release({})
    finally:
        stop.set()
        reader.join()


@pytest.mark.e2e
def test_of_many_claimants_exactly_one_wins(spawn: Spawn) -> None:
    code = (
        "import sys\n"
        "from unilab_ipc.errors import NameInUse\n"
        "from unilab_ipc.registry import JobFolder\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    try:\n"
        "        folder = JobFolder.claim(line.strip(), {})\n"
        "        print('won', flush=True)\n"
        "    except NameInUse:\n"
        "        print('lost', flush=True)\n"
    )
    children = [spawn(code) for _ in range(4)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for number in range(20):
        for child in children:
            assert child.stdin is not None
            child.stdin.write(f"job-{number}\n")
            child.stdin.flush()
        answers = [child.stdout.readline() for child in children if child.stdout is not None]
        assert sorted(answers) == ["lost\n", "lost\n", "lost\n", "won\n"]


def test_open_of_an_unknown_or_half_made_job_is_missing(runtime_dir_of_the_test: Path) -> None:
    with pytest.raises(JobMissing):
        JobFolder.open("nobody")
    (runtime_dir() / "half").mkdir(mode=0o700)
    with pytest.raises(JobMissing):
        JobFolder.open("half")


@pytest.mark.parametrize("job", ["../up", "a/b", ".hidden", ""])
def test_job_names_cannot_leave_the_directory(job: str) -> None:
    with pytest.raises(ValueError, match="not valid"):
        JobFolder.claim(job, {})
    with pytest.raises(ValueError, match="not valid"):
        JobFolder.open(job)


def test_a_symlinked_job_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (runtime_dir() / "go2").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="not a directory"):
        JobFolder.claim("go2", {})
    assert list_jobs() == []


def test_a_fifo_in_place_of_the_lock_neither_blocks_nor_passes() -> None:
    (runtime_dir() / "go2").mkdir(mode=0o700)
    os.mkfifo(runtime_dir() / "go2" / "owner.lock", 0o600)
    with pytest.raises(ValueError, match="not a regular file"):
        JobFolder.claim("go2", {})


def test_children_share_records_but_not_after_a_take_over() -> None:
    first = JobFolder.claim("go2", {})
    child = JobFolder.open("go2")
    child.write_json("env_spec.json", {"task": "t"})
    assert first.read_json("env_spec.json") == {"task": "t"}
    first.release({})
    second = JobFolder.claim("go2", {})
    with pytest.raises(IpcError, match="taken over"):
        child.write_json("env_spec.json", {"task": "old"})
    assert second.read_json("env_spec.json") is None


def test_readers_never_see_half_a_record() -> None:
    folder = JobFolder.claim("go2", {})
    folder.write_json("job.json", {"n": 0, "pad": "x" * 100_000})
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            folder.write_json("job.json", {"n": number, "pad": "x" * (number % 7) * 20_000})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            record = folder.read_json("job.json")
            assert record is not None
            assert set(record) == {"n", "pad"}
    finally:
        stop.set()
        writer.join()
    assert sorted(os.listdir(folder.path)) == ["job.json", "owner.lock"]


def test_a_record_that_cannot_be_json_leaves_the_old_one() -> None:
    folder = JobFolder.claim("go2", {})
    folder.write_json("job.json", {"n": 1})
    with pytest.raises(ValueError, match="JSON"):
        folder.write_json("job.json", {"n": float("nan")})
    assert folder.read_json("job.json") == {"n": 1}
    assert sorted(os.listdir(folder.path)) == ["job.json", "owner.lock"]


@pytest.mark.parametrize("name", ["../x.json", "a/b.json", ".x.json", "owner.lock", "x"])
def test_record_names_are_plain(name: str) -> None:
    with pytest.raises(ValueError, match="plain"):
        JobFolder.claim("go2", {}).write_json(name, {})


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"\xff\xfe", b'{"a":' * 100_000])
def test_damaged_records_are_named_and_do_not_break_the_list(raw: bytes) -> None:
    folder = JobFolder.claim("go2", {})
    (folder.path / "job.json").write_bytes(raw)
    with pytest.raises(RecordInvalid, match=r"job\.json"):
        folder.read_json("job.json")
    assert list_jobs()[0].state == "starting"


def test_a_record_that_is_a_symlink_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    folder = JobFolder.claim("go2", {})
    (folder.path / "job.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(RecordInvalid):
        folder.read_json("job.json")


def test_strange_entries_are_not_jobs() -> None:
    (runtime_dir() / "a file").write_text("")
    (runtime_dir() / ".dot").mkdir(mode=0o700)
    (runtime_dir() / "open").mkdir()
    (runtime_dir() / "open").chmod(0o755)
    (runtime_dir() / "empty").mkdir(mode=0o700)
    assert list_jobs() == []


def test_only_the_owner_releases() -> None:
    JobFolder.claim("go2", {})
    with pytest.raises(IpcError, match="only the owner"):
        JobFolder.open("go2").release({})


def test_dead_jobs_are_buried_with_what_is_known_and_live_ones_left(spawn: Spawn) -> None:
    owner = start_owner(spawn, "dead-1", "attachable")
    start_owner(spawn, "live-1")
    owner.kill()
    owner.wait()
    assert bury_dead_jobs(dry_run=True) == ["dead-1"]
    assert state_of("dead-1") == "dead"
    assert bury_dead_jobs() == ["dead-1"]
    info = next(info for info in list_jobs() if info.job == "dead-1")
    assert info.state == "ended"
    assert info.ended is not None
    assert info.ended["pid"] == owner.pid
    assert info.ended["run_id"] == "0123abcd"
    assert sorted(os.listdir(info.path)) == ["ended.json", "owner.lock"]
    assert state_of("live-1") == "starting"
    assert bury_dead_jobs() == []


def test_ended_records_are_plain_json() -> None:
    folder = JobFolder.claim("go2", {})
    folder.release({"state": "ended", "exit_code": 0})
    assert json.loads((folder.path / "ended.json").read_text()) == {
        "state": "ended",
        "exit_code": 0,
    }
