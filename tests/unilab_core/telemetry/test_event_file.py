"""Event files: what is written can be read, by us and by TensorBoard, and damage stays local."""

import errno
import math
import os

import pytest

from unilab_core.telemetry import event_file
from unilab_core.telemetry.event_file import (
    EventFile,
    ScalarEvent,
    event_files,
    read_events,
    read_scalars,
)


def event(step, **scalars):
    return ScalarEvent(step=step, wall_time_s=1000.0 + step, scalars=scalars)


def write(run_dir, events, purge_step=None):
    file = EventFile(run_dir, purge_step)
    for each in events:
        file.write(each)
    file.close()
    return file.path


def test_one_event_holds_all_scalars_of_a_step(tmp_path):
    path = write(tmp_path, [event(64, a=1.5, b=-2.0), event(128, a=2.5)])
    assert list(read_events(path)) == [event(64, a=1.5, b=-2.0), event(128, a=2.5)]


def test_non_finite_and_oversized_numbers_are_written(tmp_path):
    path = write(tmp_path, [event(1, nan=math.nan, inf=-math.inf, big=1e308, tiny=1e-320)])
    (found,) = read_events(path)
    assert math.isnan(found.scalars["nan"])
    assert found.scalars["inf"] == -math.inf
    assert found.scalars["big"] == math.inf
    assert found.scalars["tiny"] == 0.0


def test_a_written_event_is_readable_while_the_file_is_open(tmp_path):
    file = EventFile(tmp_path)
    file.write(event(1, a=1.0))
    assert list(read_events(file.path)) == [event(1, a=1.0)]
    file.close()


def test_the_steps_of_a_resumed_run_are_monotone_when_read_back(tmp_path):
    write(tmp_path, [event(step, a=float(step)) for step in (64, 128, 192, 256)])
    write(tmp_path, [event(step, a=-float(step)) for step in (192, 256)], purge_step=129)
    assert len(event_files(tmp_path)) == 2
    assert read_scalars(tmp_path) == {"a": [(64, 64.0), (128, 128.0), (192, -192.0), (256, -256.0)]}


def test_tensorboard_itself_reads_the_files_and_purges(tmp_path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write(tmp_path, [event(step, a=float(step)) for step in (64, 128, 192)])
    write(tmp_path, [event(192, a=-192.0), event(256, a=-256.0)], purge_step=129)
    reader = accumulators.EventAccumulator(str(tmp_path))
    reader.Reload()
    assert [(e.step, e.value) for e in reader.Scalars("a")] == [
        (64, 64.0),
        (128, 128.0),
        (192, -192.0),
        (256, -256.0),
    ]
    assert reader.Scalars("a")[0].wall_time == 1064.0


def test_the_unfinished_record_of_a_killed_run_ends_the_file_quietly(tmp_path):
    path = write(tmp_path, [event(1, a=1.0), event(2, a=2.0)])
    whole = path.read_bytes()
    for kept in range(len(whole) - 1, len(whole) - 30, -1):
        path.write_bytes(whole[:kept])
        assert list(read_events(path)) == [event(1, a=1.0)]


def test_a_damaged_record_is_not_believed(tmp_path):
    path = write(tmp_path, [event(1, a=1.0), event(2, a=2.0)])
    data = bytearray(path.read_bytes())
    data[-6] ^= 0x40
    path.write_bytes(data)
    assert list(read_events(path)) == [event(1, a=1.0)]


def test_a_write_that_fails_half_way_leaves_whole_records_only(tmp_path, monkeypatch):
    file = EventFile(tmp_path)
    file.write(event(1, a=1.0))
    real_write = os.write
    room = [20]

    def write_until_full(fd, data):
        if room[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real_write(fd, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(event_file.os, "write", write_until_full)
    with pytest.raises(OSError, match="No space left"):
        file.write(event(2, a=2.0))
    monkeypatch.undo()
    file.write(event(4, a=4.0))
    file.close()
    assert list(read_events(file.path)) == [event(1, a=1.0), event(4, a=4.0)]


def test_a_file_that_cannot_even_be_started_is_not_left_behind(tmp_path, monkeypatch):
    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(event_file.os, "write", full)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No space left"):
        EventFile(tmp_path)
    assert event_files(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_files_of_the_same_second_and_process_do_not_collide(tmp_path):
    paths = {write(tmp_path, []) for _ in range(3)}
    assert len(paths) == 3
    assert event_files(tmp_path) == sorted(paths)
