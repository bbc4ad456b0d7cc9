"""The last line and the figures it is made of."""

from pathlib import Path

from unilab_core.launch.ending import (
    last_line,
    newest_checkpoint,
    recent_records,
    remove_partial_files,
)
from unilab_core.launch.outcome import completed, stopped_by
from unilab_core.run.run_dir import RunPaths
from unilab_ipc.clock import ManualClock
from unilab_ipc.memory import local_segment
from unilab_ipc.metric_queue import RingWriter, ring_dims
from unilab_ipc.segments import METRIC_QUEUE

SECOND_NS = 1_000_000_000


def summary(**changes):
    return {
        "completed_iterations": 1234,
        "total_env_steps": 5678901,
        "wall_time_sec": 61.25,
        "final_mean_reward": 12.5,
        "saved_iteration": None,
        **changes,
    }


def test_the_last_line_has_iterations_steps_time_and_reward():
    assert last_line(completed(), summary()) == (
        "training completed: 1,234 iterations, 5,678,901 environment steps, 61.2 s, "
        "final reward 12.500"
    )


def test_a_stop_names_the_saved_iteration_or_says_that_there_is_none():
    stop = stopped_by(2, saving=True)
    assert last_line(stop, summary(saved_iteration=1200)).endswith(
        "checkpoint of iteration 1200 saved"
    )
    assert last_line(stop, summary()).endswith("no checkpoint")


def test_figures_that_are_not_known_are_a_dash():
    nothing = summary(completed_iterations=None, total_env_steps=None, final_mean_reward=None)
    assert "- iterations, - environment steps" in last_line(completed(), nothing)


def test_the_newest_checkpoint_is_the_one_of_the_highest_iteration(tmp_path: Path):
    assert newest_checkpoint(tmp_path) == {}
    for name in ("checkpoint_00000900.pt", "checkpoint_00001000.pt", "best.pt", "x.tmp"):
        (tmp_path / name).touch()
    found = newest_checkpoint(tmp_path)
    assert found["saved_iteration"] == 1000
    assert found["last_checkpoint"].endswith("checkpoint_00001000.pt")


def test_the_last_seconds_are_kept_and_the_static_facts_however_old():
    ring = local_segment(METRIC_QUEUE, ring_dims(1 << 16))
    writer = RingWriter(ring)
    writer.write({"kind": "run", "t_ns": 1, "job": "old"})
    writer.write({"kind": "run", "t_ns": 2, "job": "new"})
    for second in (5, 89, 90, 99):
        writer.write({"kind": "iteration", "t_ns": second * SECOND_NS, "iteration": second})
    records = recent_records(ring, ManualClock(100 * SECOND_NS))
    assert records[0]["job"] == "new"
    assert [record["iteration"] for record in records[1:]] == [90, 99]


def test_a_run_that_was_silent_for_long_keeps_its_last_record():
    ring = local_segment(METRIC_QUEUE, ring_dims(1 << 16))
    RingWriter(ring).write({"kind": "iteration", "t_ns": 5, "iteration": 1})
    records = recent_records(ring, ManualClock(1000 * SECOND_NS))
    assert [record["iteration"] for record in records] == [1]


def test_half_written_files_of_a_killed_save_are_removed_and_nothing_else(tmp_path: Path):
    run = RunPaths(tmp_path)
    run.checkpoints.mkdir()
    kept = run.checkpoints / "checkpoint_00000007.pt"
    partial = run.checkpoints / ".checkpoint_00000008.pt.123.tmp"
    for path in (kept, partial, tmp_path / ".policy.pt.123.tmp", tmp_path / "notes.tmp"):
        path.write_bytes(b"x")
    remove_partial_files(run)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"checkpoints/checkpoint_00000007.pt", "notes.tmp"}
