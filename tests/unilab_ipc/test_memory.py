"""Creation, attachment and removal of POSIX segments, and what is refused."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unilab_ipc import memory
from unilab_ipc.errors import (
    IpcError,
    NoSpace,
    SegmentForeign,
    SegmentMismatch,
    SegmentMissing,
    SegmentNotReady,
)
from unilab_ipc.layout import Field, Layout
from unilab_ipc.memory import create_segment, local_segment, open_segment
from unilab_ipc.names import segment_name

TABLE = Layout(
    "sample",
    1,
    (
        Field("count", "<i8", (), "a", "one word", line=True, initial=-1),
        Field("rows", "<f4", ("E", 2), "a", "payload"),
    ),
)
DIMS = {"E": 3}


@pytest.fixture
def name(run_id: str) -> str:
    return segment_name(run_id, "inference_slot", 0)


def write_bytes(name: str, offset: int, raw: bytes) -> None:
    fd = os.open("/dev/shm" + name, os.O_RDWR)
    os.pwrite(fd, raw, offset)
    os.close(fd)


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_one_side_writes_the_other_reads(name: str) -> None:
    ours = create_segment(TABLE, name, DIMS)
    theirs = open_segment(TABLE, name, DIMS)
    ours.view["rows"][2, 1] = 7.5
    assert float(theirs.view["rows"][2, 1]) == 7.5
    assert int(theirs.view["count"][()]) == -1
    assert theirs.fingerprint == ours.fingerprint


def test_mode_is_0600_under_any_umask(name: str) -> None:
    before = os.umask(0)
    try:
        create_segment(TABLE, name, DIMS)
    finally:
        os.umask(before)
    assert os.stat("/dev/shm" + name).st_mode & 0o7777 == 0o600


def test_mode_is_0600_under_umask_077(name: str) -> None:
    before = os.umask(0o777)
    try:
        create_segment(TABLE, name, DIMS)
    finally:
        os.umask(before)
    assert os.stat("/dev/shm" + name).st_mode & 0o7777 == 0o600


def test_all_pages_are_allocated_at_creation(name: str) -> None:
    segment = create_segment(TABLE, name, {"E": 100_000})
    assert os.stat("/dev/shm" + name).st_blocks * 512 >= segment.size_bytes


def test_an_existing_name_is_never_opened_instead(name: str) -> None:
    first = create_segment(TABLE, name, DIMS)
    first.view["rows"][...] = 1.0
    with pytest.raises(IpcError, match="exists already"):
        create_segment(TABLE, name, DIMS)
    assert float(first.view["rows"].sum()) == 6.0


def test_the_descriptor_is_not_inherited_by_children(name: str) -> None:
    segment = create_segment(TABLE, name, DIMS)
    assert not os.get_inheritable(segment._lock_fd)
    inherited = subprocess.run(
        ["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True
    )
    assert name not in inherited.stdout


def test_creator_holds_the_lock_until_it_closes(name: str) -> None:
    segment = create_segment(TABLE, name, DIMS)
    rows = segment.view["rows"]  # keeps the mapping, and with it a duplicate of the descriptor
    fd = os.open("/dev/shm" + name, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    segment.close()
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    assert float(rows.sum()) == 0.0


def test_attaching_takes_no_lock(name: str) -> None:
    create_segment(TABLE, name, DIMS).close()
    attached = open_segment(TABLE, name, DIMS)
    fd = os.open("/dev/shm" + name, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    attached.close()


def test_only_the_creator_unlinks(name: str) -> None:
    ours = create_segment(TABLE, name, DIMS)
    theirs = open_segment(TABLE, name, DIMS)
    with pytest.raises(IpcError, match="only the creator"):
        theirs.unlink()
    ours.unlink()
    assert not os.path.exists("/dev/shm" + name)
    ours.unlink()


def test_unlink_spares_a_stranger_under_the_same_name(name: str) -> None:
    ours = create_segment(TABLE, name, DIMS)
    os.unlink("/dev/shm" + name)
    stranger = create_segment(TABLE, name, DIMS)
    ours.unlink()
    assert os.path.exists("/dev/shm" + name)
    stranger.unlink()


def test_mappings_go_on_after_unlink(name: str) -> None:
    ours = create_segment(TABLE, name, DIMS)
    theirs = open_segment(TABLE, name, DIMS)
    ours.unlink()
    ours.view["rows"][0, 0] = 4.0
    assert float(theirs.view["rows"][0, 0]) == 4.0


def test_read_only_attachment_refuses_writes(name: str) -> None:
    create_segment(TABLE, name, DIMS)
    reader = open_segment(TABLE, name, DIMS, readonly=True)
    with pytest.raises(ValueError, match="read-only"):
        reader.view["rows"][0, 0] = 1.0


def test_descriptors_are_few_and_given_back(name: str) -> None:
    before = open_fds()
    ours = create_segment(TABLE, name, DIMS)
    assert open_fds() - before <= 2
    theirs = open_segment(TABLE, name, DIMS)
    assert open_fds() - before <= 3
    for _ in range(20):
        open_segment(TABLE, name, DIMS).close()
    assert open_fds() - before <= 3
    theirs.close()
    ours.unlink()
    ours.close()
    assert open_fds() == before


def test_close_twice_is_harmless(name: str) -> None:
    segment = create_segment(TABLE, name, DIMS)
    segment.close()
    segment.close()


def test_missing_not_ready_and_other_version_are_three_errors(name: str) -> None:
    with pytest.raises(SegmentMissing):
        open_segment(TABLE, name, DIMS)
    create_segment(TABLE, name, DIMS)
    with pytest.raises(SegmentMismatch, match="version 2"):
        open_segment(Layout("sample", 2, TABLE.fields), name, DIMS)
    write_bytes(name, 24, bytes(8))
    with pytest.raises(SegmentNotReady):
        open_segment(TABLE, name, DIMS)


def test_empty_object_of_a_creator_that_died_early_is_not_ready(name: str) -> None:
    os.close(os.open("/dev/shm" + name, os.O_CREAT | os.O_RDWR, 0o600))
    with pytest.raises(SegmentNotReady):
        open_segment(TABLE, name, DIMS)


def test_other_geometry_is_refused(name: str) -> None:
    create_segment(TABLE, name, DIMS)
    with pytest.raises(SegmentMismatch, match="fingerprint"):
        open_segment(TABLE, name, {"E": 4})


def test_a_file_cut_short_is_refused_without_sigbus(name: str) -> None:
    create_segment(TABLE, name, {"E": 10_000})
    os.truncate("/dev/shm" + name, 4096)
    with pytest.raises(SegmentForeign, match="4096 bytes"):
        open_segment(TABLE, name, {"E": 10_000})
    os.truncate("/dev/shm" + name, 10)
    with pytest.raises(SegmentForeign, match="10 bytes"):
        open_segment(TABLE, name, {"E": 10_000})


def test_a_looser_mode_is_refused(name: str) -> None:
    create_segment(TABLE, name, DIMS)
    os.chmod("/dev/shm" + name, 0o644)
    with pytest.raises(SegmentForeign, match="mode 644"):
        open_segment(TABLE, name, DIMS)


def test_a_symlink_is_refused(name: str, run_id: str) -> None:
    target = segment_name(run_id, "replay_ingress", 0)
    create_segment(TABLE, target, DIMS)
    os.symlink("/dev/shm" + target, "/dev/shm" + name)
    with pytest.raises((SegmentForeign, SegmentMissing)):
        open_segment(TABLE, name, DIMS)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the owner")
def test_another_owner_is_refused(name: str) -> None:
    create_segment(TABLE, name, DIMS)
    os.chown("/dev/shm" + name, 12345, -1)
    with pytest.raises(SegmentForeign, match="uid 12345"):
        open_segment(TABLE, name, DIMS)


def test_any_damaged_header_byte_is_refused_with_our_error(name: str) -> None:
    create_segment(TABLE, name, DIMS)
    for offset in range(32):
        fd = os.open("/dev/shm" + name, os.O_RDWR)
        good = os.pread(fd, 1, offset)
        os.pwrite(fd, bytes([good[0] ^ 0x5A]), offset)
        with pytest.raises(IpcError):
            open_segment(TABLE, name, DIMS)
        os.pwrite(fd, good, offset)
        os.close(fd)
    open_segment(TABLE, name, DIMS)


def test_open_waits_for_a_late_creator(
    name: str, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    code = (
        "import sys, time\n"
        "from unilab_ipc.layout import Field, Layout\n"
        "from unilab_ipc.memory import create_segment\n"
        "table = Layout('late', 1, (Field('x', '<i8', (), 'a', 'x', line=True),))\n"
        "segment = create_segment(table, sys.argv[1], {})\n"
        "sys.stdin.read()\n"
    )
    child = spawn(code, name)
    table = Layout("late", 1, (Field("x", "<i8", (), "a", "x", line=True),))
    segment = open_segment(table, name, {}, timeout_s=30.0)
    assert int(segment.view["x"][()]) == 0
    child.kill()


def test_too_large_a_segment_says_need_and_free_and_leaves_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "shm_free_bytes", lambda: 1000)
    with pytest.raises(NoSpace, match="1000 bytes free") as caught:
        create_segment(TABLE, name, {"E": 1000})
    assert caught.value.need_bytes == TABLE.size_bytes({"E": 1000})
    assert not os.path.exists("/dev/shm" + name)


def test_running_out_of_space_while_allocating_leaves_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    fds = open_fds()
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(NoSpace):
        create_segment(TABLE, name, DIMS)
    assert not os.path.exists("/dev/shm" + name)
    assert open_fds() == fds


def test_a_collector_that_unlinks_before_the_lock_makes_the_creator_start_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_flock = fcntl.flock
    inodes: list[int] = []

    def flock_after_the_collector(fd: int, flags: int) -> None:
        if not inodes:
            inodes.append(os.fstat(fd).st_ino)
            os.unlink("/dev/shm" + name)
        real_flock(fd, flags)

    monkeypatch.setattr(fcntl, "flock", flock_after_the_collector)
    segment = create_segment(TABLE, name, DIMS)
    assert len(inodes) == 1
    assert os.stat("/dev/shm" + name).st_ino == os.fstat(segment._lock_fd).st_ino


def test_a_collector_that_holds_the_lock_is_outlasted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_flock = fcntl.flock
    collector: list[int] = []

    def flock_with_a_collector(fd: int, flags: int) -> None:
        if not collector:
            collector.append(os.open("/dev/shm" + name, os.O_RDONLY))
            real_flock(collector[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif len(collector) == 1:
            os.unlink("/dev/shm" + name)
            os.close(collector[0])
            collector.append(-1)
        real_flock(fd, flags)

    monkeypatch.setattr(fcntl, "flock", flock_with_a_collector)
    create_segment(TABLE, name, DIMS)
    assert collector[1:] == [-1]
    assert open_segment(TABLE, name, DIMS).size_bytes == TABLE.size_bytes(DIMS)


def test_local_segment_has_the_same_views_and_initial_values() -> None:
    segment = local_segment(TABLE, DIMS)
    assert segment.view["rows"].shape == (3, 2)
    assert segment.view["rows"].dtype == np.float32
    assert int(segment.view["count"][()]) == -1


@pytest.mark.e2e
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small /dev/shm")
def test_a_small_shm_refuses_at_creation_and_never_kills_at_the_first_touch(name: str) -> None:
    code = (
        "import os, sys\n"
        "from unilab_ipc.errors import NoSpace\n"
        "from unilab_ipc.layout import Field, Layout\n"
        "from unilab_ipc.memory import create_segment\n"
        "table = Layout('big', 1, (Field('x', 'u1', ('B',), 'a', 'x'),))\n"
        "for size in (500_000, 1_030_000, 1_100_000, 2_000_000, 500_000):\n"
        "    try:\n"
        "        segment = create_segment(table, sys.argv[1], {'B': size})\n"
        "    except NoSpace as error:\n"
        "        assert error.need_bytes >= size and error.free_bytes == 1 << 20\n"
        "        print('refused', os.listdir('/dev/shm'))\n"
        "    else:\n"
        "        segment.view['x'][...] = 1\n"
        "        segment.unlink(); segment.close()\n"
        "        print('filled')\n"
    )
    mount = "mount -t tmpfs -o size=1m tmpfs /dev/shm"
    child = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            f'{mount} && exec "$@"',
            "sh",
            sys.executable,
            "-c",
            code,
            name,
        ],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    if "unshare" in child.stderr or "mount" in child.stderr:
        pytest.skip(child.stderr)
    assert child.stdout.splitlines() == [
        "filled",
        "filled",
        "refused []",
        "refused []",
        "filled",
    ], child.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_can_neither_attach_nor_unlink_nor_lock(name: str) -> None:
    create_segment(TABLE, name, DIMS)
    pid = os.fork()
    if pid == 0:
        os.setuid(12345)
        refused = 0
        for attempt in (
            lambda: open_segment(TABLE, name, DIMS),
            lambda: open_segment(TABLE, name, DIMS, readonly=True),
            lambda: os.open("/dev/shm" + name, os.O_RDONLY),
            lambda: os.unlink("/dev/shm" + name),
        ):
            try:
                attempt()
            except (SegmentForeign, PermissionError):
                refused += 1
        os._exit(refused)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 4
    open_segment(TABLE, name, DIMS)
