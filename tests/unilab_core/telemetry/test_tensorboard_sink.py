"""The sink never blocks and never raises: a slow, full or missing disk costs counted records."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from unilab_core.telemetry import tensorboard_sink
from unilab_core.telemetry.event_file import EventFile, event_files, read_scalars
from unilab_core.telemetry.tensorboard_sink import TensorBoardSink


def wait_until(condition, timeout_s=10.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        time.sleep(0.01)


def test_records_are_in_the_file_after_close(tmp_path):
    sink = TensorBoardSink(tmp_path)
    for step in range(1, 4):
        sink.write(step, 1000.0, {"a": float(step)})
    assert sink.close(timeout_s=5.0)
    assert read_scalars(tmp_path) == {"a": [(1, 1.0), (2, 2.0), (3, 3.0)]}
    assert (sink.written_count, sink.dropped_count, sink.error_count) == (3, 0, 0)


def test_records_reach_the_file_without_a_close(tmp_path):
    sink = TensorBoardSink(tmp_path, flush_interval_s=0.02)
    sink.write(1, 1000.0, {"a": 1.0})
    wait_until(lambda: read_scalars(tmp_path) == {"a": [(1, 1.0)]})
    sink.close(timeout_s=5.0)


def test_by_default_the_disk_is_at_most_five_seconds_behind():
    assert tensorboard_sink.FLUSH_INTERVAL_S <= 5.0


def test_a_resumed_run_hides_what_it_writes_again(tmp_path):
    first = TensorBoardSink(tmp_path)
    for step in (64, 128, 192):
        first.write(step, 1000.0, {"a": 1.0})
    first.close(timeout_s=5.0)
    second = TensorBoardSink(tmp_path, purge_step=65)
    second.write(128, 1000.0, {"a": 2.0})
    second.close(timeout_s=5.0)
    assert read_scalars(tmp_path) == {"a": [(64, 1.0), (128, 2.0)]}


def test_a_hanging_disk_drops_the_oldest_and_closing_stays_bounded(tmp_path, monkeypatch):
    disk = threading.Event()
    entered = threading.Event()

    class HangingFile(EventFile):
        def write(self, event):
            entered.set()
            disk.wait()
            super().write(event)

    monkeypatch.setattr(tensorboard_sink, "EventFile", HangingFile)
    sink = TensorBoardSink(tmp_path, queue_records=4, flush_interval_s=0.01)
    sink.write(0, 1000.0, {"a": 0.0})
    assert entered.wait(10.0)
    for step in range(1, 11):
        sink.write(step, 1000.0, {"a": float(step)})
    assert sink.dropped_count == 6
    assert not sink.close(timeout_s=0.05), "the disk still hangs"
    disk.set()
    assert sink.close(timeout_s=10.0)
    steps = [step for step, _ in read_scalars(tmp_path)["a"]]
    assert steps == [0, 7, 8, 9, 10], "the newest four survived"


def test_a_full_disk_costs_records_and_one_warning_then_writing_resumes(
    tmp_path, monkeypatch, caplog
):
    full = threading.Event()
    full.set()

    class FullDisk(EventFile):
        def write(self, event):
            if full.is_set():
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write(event)

    monkeypatch.setattr(tensorboard_sink, "EventFile", FullDisk)
    sink = TensorBoardSink(tmp_path, flush_interval_s=0.01)
    for count in (1, 2, 3):
        sink.write(count, 1000.0, {"a": 1.0})
        wait_until(lambda count=count: sink.error_count == count)
    assert sink.dropped_count == 3
    assert len(caplog.records) == 1
    assert "training goes on" in caplog.records[0].getMessage()
    full.clear()
    sink.write(4, 1000.0, {"a": 4.0})
    assert sink.close(timeout_s=5.0)
    assert read_scalars(tmp_path) == {"a": [(4, 4.0)]}
    assert "3 records lost" in caplog.records[-1].getMessage()


def test_a_run_directory_that_appears_late_is_no_error_for_training(tmp_path):
    run_dir = tmp_path / "later"
    sink = TensorBoardSink(run_dir, flush_interval_s=0.01)
    sink.write(1, 1000.0, {"a": 1.0})
    wait_until(lambda: sink.error_count > 0)
    run_dir.mkdir()
    wait_until(lambda: event_files(run_dir) != [])
    sink.write(2, 1000.0, {"a": 2.0})
    assert sink.close(timeout_s=5.0)
    assert read_scalars(run_dir) == {"a": [(2, 2.0)]}


def test_threads_and_descriptors_stay_flat_over_many_sinks(tmp_path):
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        sink = TensorBoardSink(tmp_path)
        assert threading.active_count() == threads + 1
        sink.write(1, 1000.0, {"a": 1.0})
        assert sink.close(timeout_s=5.0)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.slow
def test_a_killed_process_leaves_what_it_wrote(tmp_path):
    code = (
        "import sys, pathlib, time\n"
        "from unilab_core.telemetry.tensorboard_sink import TensorBoardSink\n"
        "sink = TensorBoardSink(pathlib.Path(sys.argv[1]), flush_interval_s=0.05)\n"
        "for step in range(1, 10**9):\n"
        "    sink.write(step, time.time(), {'a': float(step)})\n"
        "    if step == 100:\n"
        "        while not sink.written_count:\n"
        "            time.sleep(0.01)\n"
        "        print('written', flush=True)\n"
        "    time.sleep(0.001)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "written\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    steps = [step for step, _ in read_scalars(tmp_path)["a"]]
    assert steps[: len(steps)] == list(range(1, len(steps) + 1))
    assert len(steps) >= 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_a_dead_writer_left_in_the_queue_is_counted_as_lost(tmp_path, monkeypatch):
    class Broken:
        def __init__(self, run_dir, purge_step):
            raise SystemExit  # ends the thread, quietly

    monkeypatch.setattr(tensorboard_sink, "EventFile", Broken)
    sink = TensorBoardSink(tmp_path, queue_records=4, flush_interval_s=0.001)
    sink._thread.join()
    for step in range(10):
        sink.write(step, 0.0, {"a": 1.0})
    assert sink.dropped_count == 6  # pushed out of the queue
    assert not sink.close(5.0)
    assert sink.dropped_count == 10
