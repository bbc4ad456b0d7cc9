"""Attaching to a synthetic job, reading what a finished one left, and finding either by name."""

import json
import os
import time

import pytest
from synthetic_job import SECOND, collector, iteration, run_info

from unilab_core.run.json_files import write_json_atomic
from unilab_ipc.errors import SegmentMismatch
from unilab_monitor.model import Model
from unilab_monitor.sources import KILLED_REASON, FinishedSource, LiveSource
from unilab_monitor.target import NothingToShow, open_job, resolve


def write_some(job, count=50):
    now_ns = time.monotonic_ns()
    job.learner.write(run_info(job=job.job, run_dir=str(job.run_dir)).record(now_ns))
    for k in range(count):
        t_ns = now_ns - (count - k) * SECOND // 100
        job.learner.write(iteration(t_ns, k).record())
        job.collector.write(collector(t_ns, k).record())


def last_state(run_dir, **changes):
    state = {
        "version": 1,
        "state": "ended",
        "reason": "learner 3 died: SIGKILL",
        "exit_code": 10,
        "job": "go2-1",
        "algo": "sac",
        "task": "go2_joystick_flat",
        "sim": "mujoco",
        "t_ns": 102 * SECOND,
        "board": [
            {
                "role": "learner",
                "rank": 0,
                "pid": 3,
                "phase": "training/learner_update",
                "awaits": None,
                "beat_ns": 101 * SECOND,
                "state": "alive",
            }
        ],
        "learner": [
            run_info(trainable_ns=40 * SECOND).record(100 * SECOND),
            iteration(101 * SECOND, 400).record(),
        ],
        "collector": [collector(101 * SECOND, 400).record()],
        **changes,
    }
    run_dir.mkdir(exist_ok=True)
    write_json_atomic(run_dir / "last_state.json", state)


def poll(source):
    return Model().fold(source.poll())


def test_a_late_monitor_gets_the_recent_history(make_job):
    job = make_job()
    write_some(job)
    source = resolve("go2-1")
    view = poll(source)
    assert view.state == "running"
    assert view.iteration == 49
    assert view.window_samples == 50
    assert view.facts.task == "go2_joystick_flat"
    assert [p.role for p in view.processes] == ["launcher", "collector", "learner"]
    assert view.processes[1].awaits == "learner"
    assert view.lapped == 0
    source.close()


def test_two_monitors_read_the_same_job_without_noticing_each_other(make_job):
    job = make_job()
    write_some(job)
    one, other = resolve("go2-1"), resolve("go2-1")
    assert poll(one).iteration == poll(other).iteration == 49
    one.close()
    write_some(job, 60)
    model = Model()
    assert model.fold(other.poll()).iteration == 59
    other.close()


def test_attaching_and_leaving_changes_nothing_of_the_job(make_job):
    job = make_job()
    write_some(job)
    files = sorted(os.listdir(job.folder.path))
    segments = {s.name: bytes(memoryview(s.view["oldest_cursor"])) for s in job.segments[1:]}
    for _ in range(20):
        source = resolve("go2-1")
        source.poll()
        source.close()
    assert sorted(os.listdir(job.folder.path)) == files
    assert all(os.path.exists(f"/dev/shm{name}") for name in segments)
    assert job.folder.is_live()


def test_a_job_that_is_not_attachable_yet_is_starting_and_shows_its_phases(make_job):
    job = make_job(attachable=False)
    source = resolve("go2-1")
    view = poll(source)
    assert view.state == "starting"
    assert len(view.processes) == 3
    job.folder.write_json("job.json", job.record)
    assert Model().fold(source.poll()).state == "running"
    source.close()


def test_a_lapped_monitor_counts_what_it_lost(make_job):
    job = make_job()
    write_some(job, 1)
    source = resolve("go2-1")
    source.poll()
    write_some(job, 6000)  # about 8 MiB into a ring of 4 MiB
    view = poll(source)
    assert view.lapped > 0
    assert view.iteration == 5999
    source.close()


def test_when_the_job_ends_the_rest_is_read_and_the_reason_shown(make_job):
    job = make_job()
    write_some(job, 10)
    source, model = resolve("go2-1"), Model()
    assert model.fold(source.poll()).iteration == 9
    write_some(job, 20)
    job.end(reason="completed", exit_code=0)
    view = model.fold(source.poll())
    assert view.state == "ended"
    assert view.end.reason == "completed"
    assert view.iteration == 19
    assert model.fold(source.poll()).end == view.end
    source.close()


def test_a_killed_launcher_is_an_end_not_a_stall(make_job):
    job = make_job()
    write_some(job)
    source = resolve("go2-1")
    os.close(job.folder._lock_fd)  # what the kernel does when the launcher is killed
    job.folder._lock_fd = None
    view = poll(source)
    assert view.state == "ended"
    assert view.end.reason == KILLED_REASON
    assert view.iteration == 49
    source.close()
    late = poll(resolve("go2-1"))  # the segments are still there: attach to them
    assert (late.state, late.iteration) == ("ended", 49)
    job.unlink()
    gone = poll(resolve("go2-1"))
    assert (gone.state, gone.end.reason, gone.iteration) == ("ended", KILLED_REASON, None)
    assert gone.facts.algo == "sac"


def test_a_new_run_of_the_same_name_does_not_pass_for_the_old_one(make_job):
    job = make_job()
    write_some(job)
    source = resolve("go2-1")
    poll(source)
    job.end()
    make_job()
    view = poll(source)
    assert view.state == "ended"
    source.close()


def test_segments_of_another_version_are_refused(make_job):
    job = make_job()
    launch = job.folder.read_json("launch.json")
    launch["rings"]["learner-0"]["capacity_bytes"] = 1 << 20
    job.folder.write_json("launch.json", launch)
    with pytest.raises(SegmentMismatch):
        open_job("go2-1").poll()
    job.folder.write_json("launch.json", {"rings": 5})
    with pytest.raises(SegmentMismatch):
        open_job("go2-1").poll()


def test_a_finished_run_shows_its_last_state_and_reason(tmp_path):
    run_dir = tmp_path / "run"
    last_state(run_dir)
    source = resolve(str(run_dir))
    assert isinstance(source, FinishedSource)
    view = poll(source)
    assert view.state == "ended"
    assert (view.end.reason, view.end.exit_code) == ("learner 3 died: SIGKILL", 10)
    assert view.iteration == 400
    assert view.elapsed_s == 62.0
    assert view.learner.age_s == 1.0
    assert view.facts.run_dir == str(run_dir)
    assert [(p.role, p.age_s) for p in view.processes] == [("learner", 1.0)]


def test_figures_that_were_not_finite_are_left_out_of_a_last_state(tmp_path):
    record = iteration(101 * SECOND, 400).record()
    record["metrics"] = {"Loss/critic": float("nan"), "Loss/actor": 1.0}
    last_state(tmp_path / "run", learner=[record])
    view = poll(resolve(str(tmp_path / "run")))
    assert view.metrics == {"Loss/actor": 1.0}
    assert view.invalid == 0


@pytest.mark.parametrize(
    "damage",
    [{"learner": 5}, {"board": "x"}, {"board": [1, {"role": 7}]}, {"t_ns": "now"}, {"reason": []}],
)
def test_a_damaged_last_state_is_shown_as_far_as_it_goes(tmp_path, damage):
    last_state(tmp_path / "run", **damage)
    assert poll(resolve(str(tmp_path / "run"))).state == "ended"


def test_a_killed_run_with_its_configuration_alone_is_still_an_ended_run(tmp_path):
    (tmp_path / "run_config.json").write_text(
        json.dumps({"job": "go2-1", "algo": "sac", "task": "go2_joystick_flat", "sim": "mujoco"})
    )
    view = poll(resolve(str(tmp_path)))
    assert view.state == "ended"
    assert view.facts.task == "go2_joystick_flat"
    assert view.iteration is None


def test_an_ended_job_is_found_by_name_through_its_pointer(make_job):
    job = make_job()
    last_state(job.run_dir)
    job.end(reason="stopped by SIGINT", exit_code=130)
    view = poll(resolve("go2-1"))
    assert (view.state, view.end.reason, view.end.exit_code) == ("ended", "stopped by SIGINT", 130)
    assert view.iteration == 400


def test_the_directory_of_a_live_job_attaches_to_the_job(make_job):
    job = make_job()
    write_some(job)
    source = resolve(str(job.run_dir))
    assert isinstance(source, LiveSource)
    assert poll(source).state == "running"
    source.close()


def test_without_an_argument_the_live_job_is_taken_else_the_newest(make_job):
    with pytest.raises(NothingToShow):
        resolve(None)
    make_job("one").end(reason="first")
    make_job("two")
    make_job("three").end(reason="third")
    assert poll(resolve(None)).facts.job == "two"
    open_job("two").close()


def test_of_ended_jobs_the_newest_is_taken(make_job):
    make_job("one").end(reason="first")
    make_job("two").end(reason="second")
    assert poll(resolve(None)).end.reason == "second"


@pytest.mark.parametrize("target", ["nobody", "../x", "a b", "\x1b[31m", "-", "x" * 300])
def test_what_does_not_exist_is_named_harmlessly(target):
    with pytest.raises(NothingToShow) as raised:
        resolve(target)
    assert "\x1b" not in str(raised.value)


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(NothingToShow, match="not a run directory"):
        resolve(str(tmp_path))


def test_a_job_says_where_its_traces_are_and_what_their_writers_lost(make_job):
    job = make_job("traced")
    launch = job.folder.read_json("launch.json")
    trace = {"root": "/somewhere/rl_trace", "every": 64, "times": "/somewhere/progress.tsidx"}
    job.folder.write_json("launch.json", {**launch, "rl_trace": trace})
    job.folder.write_json("rl_trace-collector-0.json", {"written": 9, "dropped": 2})
    job.folder.write_json("rl_trace-learner-0.json", {"written": 9, "dropped": 1})
    source = open_job("traced")
    view = Model().fold(source.poll())
    source.close()
    assert view.facts.trace_root == "/somewhere/rl_trace"
    assert view.facts.trace_times == "/somewhere/progress.tsidx"
    assert view.trace_dropped == 3


def test_a_finished_run_still_knows_its_traces(tmp_path):
    lines = {"collector-0": {"dropped": 4}, "learner-0": {"dropped": "?"}, "other": 7}
    trace = {"root": "/somewhere/rl_trace", "lines": lines}
    write_json_atomic(tmp_path / "run_summary.json", {"status": "completed", "rl_trace": trace})
    view = Model().fold(FinishedSource(tmp_path, None).poll())
    assert view.facts.trace_root == "/somewhere/rl_trace"
    assert view.trace_dropped == 4
