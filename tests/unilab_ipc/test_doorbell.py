"""Doorbells: never block, never lose a ring, refuse what is not ours."""

import os
import select
import signal
from pathlib import Path

import pytest

from unilab_ipc.doorbell import Doorbell
from unilab_ipc.errors import SegmentForeign, SegmentMissing


def is_rung(bell: Doorbell) -> bool:
    return bool(select.select([bell.fileno()], [], [], 0)[0])


def test_a_ring_wakes_until_it_is_drained(tmp_path: Path) -> None:
    owner = Doorbell.create(tmp_path / "a.bell")
    caller = Doorbell.open(tmp_path / "a.bell")
    assert not is_rung(owner)
    caller.ring()
    caller.ring()
    assert is_rung(owner)
    owner.drain()
    assert not is_rung(owner)
    owner.drain()
    caller.ring()
    assert is_rung(owner)


def test_ringing_for_ever_without_a_reader_never_blocks(tmp_path: Path) -> None:
    bell = Doorbell.create(tmp_path / "a.bell")
    for _ in range(70_000):  # more than a pipe holds
        bell.ring()
    assert is_rung(bell)
    for _ in range(20):
        bell.drain()
    assert not is_rung(bell)


def test_rings_before_the_owner_opens_are_kept_by_any_open_end(tmp_path: Path) -> None:
    caller = Doorbell.create(tmp_path / "a.bell")
    caller.ring()
    assert is_rung(Doorbell.open(tmp_path / "a.bell"))


def test_create_is_exclusive_and_0600_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Doorbell.create(tmp_path / "a.bell")
    finally:
        os.umask(before)
    assert (tmp_path / "a.bell").stat().st_mode & 0o7777 == 0o600
    with pytest.raises(FileExistsError):
        Doorbell.create(tmp_path / "a.bell")


def test_descriptor_is_not_inherited(tmp_path: Path) -> None:
    assert not os.get_inheritable(Doorbell.create(tmp_path / "a.bell").fileno())


def test_missing_bell_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SegmentMissing):
        Doorbell.open(tmp_path / "none.bell")


def test_files_symlinks_and_loose_modes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o600)
    os.mkfifo(tmp_path / "loose", 0o600)
    (tmp_path / "loose").chmod(0o666)
    Doorbell.create(tmp_path / "good")
    (tmp_path / "link").symlink_to(tmp_path / "good")
    for name in ("file", "loose", "link", "."):
        with pytest.raises(SegmentForeign):
            Doorbell.open(tmp_path / name)


def test_signal_handlers_ring_the_bell(tmp_path: Path) -> None:
    bell = Doorbell.create(tmp_path / "a.bell")
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        bell.wake_on_signals()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert is_rung(bell)
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGUSR2, before)


def test_close_twice_is_harmless(tmp_path: Path) -> None:
    bell = Doorbell.create(tmp_path / "a.bell")
    bell.close()
    bell.close()
