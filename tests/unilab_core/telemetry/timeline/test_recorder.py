"""The recorder's file: what was recorded is in it, whatever the disk or the process does."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from unilab_core.telemetry.timeline import recorder as recorder_module
from unilab_core.telemetry.timeline.reader import CounterValue, Slice, TimelineReader
from unilab_core.telemetry.timeline.recorder import WRITER_CPU


def read(*paths):
    reader = TimelineReader(paths)
    events = list(reader.events())
    slices = [event for event in events if isinstance(event, Slice)]
    values = [
        event
        for event in events
        if isinstance(event, CounterValue) and event.track.name != WRITER_CPU
    ]
    return reader, slices, values


def test_slices_tracks_and_values_come_back(make_recorder):
    recorder = make_recorder()
    main, lane = recorder.thread_lane("learner"), recorder.lane("Iter Wall")
    depth = recorder.counter("Queue Depth", "requests")
    main.slice(
        "Inference", 1_000, 9_000, tag="Perf/learner_inference_ms", flows=(5, 2**56 + 7),
        parts=[("Forward", "Perf/x", 2_000, 3_000), ("D2H", "", 3_000, 9_000)],
    )  # fmt: skip
    lane.slice("Iter Wall", 500, 10_000, ends=(5,), note=("iteration", 3))
    depth.set(1_500, 2)
    depth.set(2_500, 0.5)
    assert recorder.close()
    reader, slices, values = read(recorder.path)
    assert [(s.name, s.tag, s.start_ns, s.end_ns, s.depth) for s in slices] == [
        ("Forward", "Perf/x", 2_000, 3_000, 1),
        ("D2H", "", 3_000, 9_000, 1),
        ("Inference", "Perf/learner_inference_ms", 1_000, 9_000, 0),
        ("Iter Wall", "", 500, 10_000, 0),
    ]
    assert slices[2].flows == (5, 2**56 + 7)
    assert (slices[3].ends, slices[3].notes) == ((5,), {"iteration": 3})
    assert [(v.track.name, v.time_ns, v.value) for v in values] == [
        ("Queue Depth", 1_500, 2.0),
        ("Queue Depth", 2_500, 0.5),
    ]
    kinds = {track.name: track.kind for track in reader.tracks.values()}
    assert kinds == {
        "learner-0": "process", "learner": "thread", "Iter Wall": "lane",
        "Queue Depth": "counter", "Events Lost": "counter", WRITER_CPU: "counter",
    }  # fmt: skip
    assert {track.process for track in reader.tracks.values()} == {"learner-0"}
    (thread,) = (track for track in reader.tracks.values() if track.kind == "thread")
    assert (thread.pid, thread.tid) == (os.getpid(), os.getpid())
    assert set(reader.clocks_ns[0]) == {1, 3, 6}


@pytest.mark.parametrize("time_ns", [0, 1, 2**14, 2**28 - 1, 2**42, 2**56 + 1, 2**63 - 1])
def test_every_time_survives_the_fast_encoding(make_recorder, time_ns):
    recorder = make_recorder()
    recorder.counter("c", "x").set(time_ns, 1)
    recorder.close()
    assert read(recorder.path)[2][0].time_ns == time_ns


def test_cpu_times_are_shown_on_threads(make_recorder):
    recorder = make_recorder()
    recorder.thread_lane("t").slice("a", 0, 10_000_000, cpu=(5_000_000, 7_000_000))
    recorder.close()
    (found,) = read(recorder.path)[1]
    assert (found.cpu_ns, found.notes) == (2_000_000, {"cpu_us": 2000})


def test_a_full_queue_loses_events_and_says_so(make_recorder):
    recorder = make_recorder(max_pending=3)
    lane = recorder.lane("l")
    for k in range(10):
        lane.slice(str(k), k, k + 1)
    assert recorder.lost_count == 7
    recorder.close()
    _, slices, values = read(recorder.path)
    assert [s.name for s in slices] == ["0", "1", "2"]
    assert [(v.track.name, v.value) for v in values] == [("Events Lost", 7.0)]


def test_a_failing_disk_costs_its_events_only_and_leaves_no_damage(make_recorder, monkeypatch):
    recorder = make_recorder(flush_interval_s=0.01)
    lane = recorder.lane("l")
    lane.slice("before", 0, 1)
    wait_until(lambda: recorder.path.exists() and b"before" in recorder.path.read_bytes())
    write = os.write

    def refuse(fd, data):
        if fd != recorder._file:
            return write(fd, data)
        write(fd, bytes(data)[:7])  # part of it arrives, as on a real disk
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(recorder_module.os, "write", refuse)
    lane.slice("lost", 1, 2)
    wait_until(lambda: recorder.error_count > 0)
    monkeypatch.setattr(recorder_module.os, "write", write)
    late = recorder.lane("late")
    late.slice("after", 2, 3)
    recorder.close()
    reader, slices, values = read(recorder.path)
    assert [s.name for s in slices] == ["before", "after"]
    assert slices[1].track.name == "late"
    assert recorder.lost_count == 1
    assert [v.value for v in values] == [1.0]
    assert not reader.torn


def test_a_folder_that_is_gone_never_reaches_the_caller(make_recorder, tmp_path):
    recorder = make_recorder(name="missing/part.pftrace", flush_interval_s=0.01)
    lane = recorder.lane("l")
    lane.slice("lost", 0, 1)
    wait_until(lambda: recorder.lost_count == 1)
    (tmp_path / "missing").mkdir()
    lane.slice("kept", 1, 2)
    wait_until(lambda: (tmp_path / "missing/part.pftrace").exists())
    recorder.close()
    assert [s.name for s in read(recorder.path)[1]] == ["kept"]


KILLED = """
import os, sys, time
from pathlib import Path
from unilab_core.telemetry.timeline.packets import ProcessId
from unilab_core.telemetry.timeline.recorder import TraceRecorder
process = ProcessId(name="learner-0", pid=os.getpid(), sequence=2)
recorder = TraceRecorder(Path(sys.argv[1]), process, flush_interval_s=0.02)
lane = recorder.thread_lane("learner")
for k in range(10**9):
    lane.slice("work", time.monotonic_ns() - 10, time.monotonic_ns(), note=("iteration", k))
    if k == 2000:
        print("running", flush=True)
    time.sleep(1e-5)
"""


def test_a_killed_process_leaves_a_readable_file(tmp_path):
    path = tmp_path / "part.pftrace"
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "running\n"
        wait_until(lambda: path.exists() and path.stat().st_size > 20_000)
        os.kill(child.pid, signal.SIGKILL)
    finally:
        child.wait(30)
        child.stdout.close()
    _, slices, _ = read(path)
    numbers = [s.notes["iteration"] for s in slices]
    assert len(numbers) > 100
    assert numbers == list(range(len(numbers)))  # up to the last flush, nothing is missing


def wait_until(condition, limit_s=20.0):
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "never happened"
        time.sleep(0.01)
