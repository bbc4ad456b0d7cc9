"""X01 modes, X02 a second user, X03 squatting, X04 symbolic links, default ACLs and FIFOs."""

import fcntl
import os
import stat
import struct
from pathlib import Path

import pytest
from launch_rig import run_names, the_run_dir
from second_user import OTHER_UID, as_other_user, needs_root, refusals

from unilab_ipc.doorbell import Doorbell
from unilab_ipc.errors import IpcError, RecordInvalid, SegmentForeign
from unilab_ipc.gc import collect_garbage
from unilab_ipc.heartbeat import board_dims
from unilab_ipc.memory import create_segment, open_segment
from unilab_ipc.names import segment_name
from unilab_ipc.registry import JobFolder, runtime_dir
from unilab_ipc.segments import HEARTBEAT

DIMS = board_dims(1)


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.mark.e2e
@pytest.mark.serial
def test_x01_every_object_of_a_live_job_is_private_under_umask_0(launch, monkeypatch):
    before = os.umask(0)
    try:
        process = launch.start("algo.max_iterations=100000")
    finally:
        os.umask(before)
    launch.running()
    names = run_names(launch.record("job.json"))
    assert len(names) >= 5
    assert {mode_of("/dev/shm" + name) for name in names} == {0o600}
    folder = launch.registry / "job-1"
    assert (mode_of(launch.registry), mode_of(folder)) == (0o700, 0o700)
    entries = list(folder.iterdir())
    assert len(entries) >= 6
    assert {path.name: oct(mode_of(path)) for path in entries if mode_of(path) != 0o600} == {}
    process.terminate()
    out, _ = process.communicate()
    # What outlives the job belongs to the user's own umask, but nobody else may change it.
    run_dir = the_run_dir(out)
    assert {path.name for path in run_dir.glob("*.json") if mode_of(path) & 0o111} == set()


@needs_root
def test_x02_another_user_can_neither_attach_nor_lock_nor_ring_nor_remove(
    public_dir, monkeypatch, run_id
):
    monkeypatch.setenv("UNILAB_RUNTIME_DIR", str(public_dir / "registry"))
    name = segment_name(run_id, "heartbeat", 0)
    segment = create_segment(HEARTBEAT, name, DIMS)
    folder = JobFolder.claim("j", {})
    Doorbell.create(folder.bell_path("learner", 0)).close()
    folder.write_json("launch.json", {"run_id": run_id})
    files = sorted(folder.path.iterdir())

    def lock(path):
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)

    attempts = [
        lambda: open_segment(HEARTBEAT, name, DIMS),
        lambda: open_segment(HEARTBEAT, name, DIMS, readonly=True),
        lambda: lock("/dev/shm" + name),
        lambda: os.unlink("/dev/shm" + name),
        lambda: JobFolder.open("j"),
        lambda: JobFolder.claim("j", {}),
        lambda: os.listdir(folder.path),
        *[lambda path=path: lock(path) for path in files],
        *[lambda path=path: os.unlink(path) for path in files],
    ]
    assert as_other_user(lambda: refusals(attempts)) == len(attempts)
    assert sorted(folder.path.iterdir()) == files
    open_segment(HEARTBEAT, name, DIMS).close()
    segment.unlink()
    segment.close()
    folder.release({"state": "ended"})


@needs_root
def test_x03_a_name_taken_by_another_user_is_avoided_and_never_attached(run_id):
    name = segment_name(run_id, "heartbeat", 0)

    def squat():
        fd = os.open("/dev/shm" + name, os.O_CREAT | os.O_RDWR, 0o666)
        os.fchmod(fd, 0o666)
        os.ftruncate(fd, HEARTBEAT.size_bytes(DIMS))
        return 0

    assert as_other_user(squat) == 0
    before = os.stat("/dev/shm" + name)
    with pytest.raises(IpcError, match="exists already"):
        create_segment(HEARTBEAT, name, DIMS)
    with pytest.raises(SegmentForeign, match=f"uid {OTHER_UID}"):
        open_segment(HEARTBEAT, name, DIMS)
    mine = [item for item in collect_garbage().skipped if item["name"] == name]
    assert mine[0]["reason"] == f"belongs to uid {OTHER_UID}"
    after = os.stat("/dev/shm" + name)
    assert (after.st_ino, after.st_size, after.st_mtime) == (
        before.st_ino,
        before.st_size,
        before.st_mtime,
    )


@needs_root
def test_x03_a_registry_made_by_another_user_is_refused(public_dir, monkeypatch):
    public_dir.chmod(0o777)
    path = public_dir / "registry"
    assert as_other_user(lambda: os.mkdir(path, 0o777) or 0) == 0
    monkeypatch.setenv("UNILAB_RUNTIME_DIR", str(path))
    with pytest.raises(ValueError, match=f"belongs to uid {OTHER_UID}"):
        runtime_dir()


RECORDS = ["launch.json", "job.json", "env_spec.json", "ended.json", "learner_result.json"]


@pytest.mark.parametrize("name", [*RECORDS, "learner-0.bell", "facts-learner-0.json"])
def test_x04_a_link_planted_in_the_job_folder_is_never_followed(tmp_path, name):
    victim = tmp_path / "victim"
    victim.write_text('{"run_id": "planted"}')
    folder = runtime_dir() / "j"
    folder.mkdir(mode=0o700)
    (folder / name).symlink_to(victim)
    if name.endswith(".json"):
        planted = JobFolder("j", folder, "", None)
        with pytest.raises((RecordInvalid, IpcError)):
            planted.read_json(name)
    else:
        with pytest.raises(SegmentForeign):
            Doorbell.open(folder / name)
    claimed = JobFolder.claim("j", {})  # removes what an earlier owner left, links included
    assert not (folder / name).is_symlink()
    if name.endswith(".json"):
        claimed.write_json(name, {"mine": True})
    else:
        Doorbell.create(folder / name).close()
    claimed.release({"state": "ended"})
    assert victim.read_text() == '{"run_id": "planted"}'


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_x04_a_lock_that_is_no_file_is_refused_at_once(tmp_path, kind):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    folder = runtime_dir() / "j"
    folder.mkdir(mode=0o700)
    lock = folder / "owner.lock"
    {
        "link": lambda: lock.symlink_to(victim),
        "fifo": lambda: os.mkfifo(lock),
        "directory": lock.mkdir,
    }[kind]()
    with pytest.raises((ValueError, OSError)):
        JobFolder.claim("j", {})
    assert victim.read_text() == "kept"


@needs_root
def test_x04_a_default_acl_above_the_registry_opens_nothing(public_dir, monkeypatch):
    # user::rwx user:OTHER:rwx group::r-x mask::rwx other::r-x, inherited by what is made inside
    entries = [
        (1, 7, 2**32 - 1),
        (2, 7, OTHER_UID),
        (4, 5, 2**32 - 1),
        (16, 7, 2**32 - 1),
        (32, 5, 2**32 - 1),
    ]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(public_dir, "system.posix_acl_default", acl)
    except OSError as error:
        pytest.skip(f"no ACLs here: {error}")
    monkeypatch.setenv("UNILAB_RUNTIME_DIR", str(public_dir / "registry"))
    folder = JobFolder.claim("j", {})
    folder.write_json("launch.json", {"a": 1})
    attempts = [
        lambda: os.listdir(folder.path),
        lambda: os.open(folder.path / "launch.json", os.O_RDONLY),
        lambda: Path(folder.path / "planted").touch(),
    ]
    assert as_other_user(lambda: refusals(attempts)) == 3
    folder.release({"state": "ended"})
