"""Steps, stages and trajectories as the learner's loops write them."""

import pytest
import torch

from unilab_core.run.job_trace import JobTrace, TraceRhythm
from unilab_core.telemetry.rl_trace.emitter import RlTraceEmitter
from unilab_core.telemetry.rl_trace.formats import LineStyle, TraceTarget
from unilab_learner.step_trace import ReplayTrace, StepTrace


@pytest.fixture
def job(tmp_path):
    def make(style, *, per_step=1, max_iterations=4, envs=(0, 8)):
        rhythm = TraceRhythm(
            style=style,
            segment_ticks=4,
            iterations_per_step=per_step,
            max_iterations=max_iterations,
        )
        emitter = RlTraceEmitter(TraceTarget(tmp_path, False), job_id="j", style=style)
        return JobTrace(emitter=emitter, rhythm=rhythm, prefix="r.0", traced_envs=envs)

    return make


def progress(trace, tmp_path):
    trace.emitter.flush()
    (path,) = tmp_path.glob("progress/*.log")
    return path.read_text().splitlines()


def rows(trace, tmp_path):
    trace.emitter.flush()
    paths = list(tmp_path.glob("sample/*.csv"))
    if not paths:
        return []
    found = []
    for line in paths[0].read_text().splitlines():
        _, _, name, status, _, content = line.split(",", 5)
        keys = dict(part.split("=", 1) for part in content.split("|"))
        found.append((name, status, keys["stage"], keys["detail"], keys["global_step"]))
    return found


def test_a_colocated_iteration_is_a_step(job, tmp_path):
    trace = job(LineStyle.COLOCATE)
    steps = StepTrace(trace)
    steps.begin(0)
    steps.rollout_taken(0)
    steps.batch_ready(64)
    with steps.advantages():
        pass
    with steps.update():
        pass
    steps.updated(1)
    steps.weights_in_use()
    with steps.metrics(1):
        pass
    with steps.checkpoint():
        pass
    lines = progress(trace, tmp_path)
    assert lines.pop(5).startswith("Generation throughput: ")
    assert lines == [
        "==================== Step 1 ====================",
        "Step 1 rollout started",
        "start generation",
        "end generation",
        "Step 1 rollout finished",
        "Step 1 train started",
        "start compute adv",
        "end compute adv",
        "start update actor",
        "end update actor",
        "Step 1 train finished",
        "start record metrics",
        "end record metrics",
        "start save checkpoint",
        "end save checkpoint",
    ]
    expected = []
    for status, stage, detail in (
        ("RUNNING", "BUFFER_SAMPLE", "sampled_from_replay_buffer"),
        ("RUNNING", "TRAIN_ADVANTAGE", "advantage_computed"),
        ("COMPLETE", "TRAIN_UPDATE", "actor_parameters_updated"),
    ):
        expected += [(f"r.0-0/{env}", status, stage, detail, "1") for env in (0, 8)]
    assert rows(trace, tmp_path) == [
        *expected,
        ("*/sample", "RUNNING", "SYNC_PARAMS", "weights_synced_global_step=1", "1"),
        ("*/sample", "RUNNING", "CHECKPOINT", "checkpoint_saved", "1"),
    ]


def iterate(steps, iteration):
    steps.begin(iteration)
    steps.batch_ready()
    with steps.update():
        pass
    steps.updated(iteration + 1)
    with steps.sync(iteration + 1):
        pass
    with steps.metrics(iteration + 1):
        pass


def test_several_off_policy_iterations_make_a_step_with_one_stage_each(job, tmp_path):
    trace = job(LineStyle.DISAGG, per_step=2, max_iterations=3)
    steps = StepTrace(trace)
    for iteration in range(3):
        iterate(steps, iteration)

    def step(number, updates):
        return [
            f"==================== Step {number} ====================",
            f"Step {number} rollout started",
            f"Trainer: try to load global batch@{number}, chunk[0/0] from replay_queue",
            f"Trainer: successfully load global batch@{number}, chunk[0/0] from replay_queue",
            f"Step {number} rollout finished",
            f"Step {number} train started",
            *(["disagg: start update actor", "disagg: end update actor"] * updates),
            f"Step {number} train finished",
            "disagg: start sync params",
            "disagg: end sync params",
            "disagg: start record metrics",
            "disagg: end record metrics",
        ]

    # The last iteration of the run closes its step, whole or not.
    assert progress(trace, tmp_path) == step(1, 2) + step(2, 1)
    assert trace.rhythm.total_steps == 2


def test_a_resumed_run_goes_on_with_its_step(job, tmp_path):
    trace = job(LineStyle.DISAGG, per_step=10, max_iterations=100)
    StepTrace(trace).begin(25)
    assert progress(trace, tmp_path)[0] == "==================== Step 3 ===================="


def test_a_rollout_that_came_too_late_is_discarded_and_never_trained(job, tmp_path):
    trace = job(LineStyle.DISAGG, envs=(0,))
    steps = StepTrace(trace)
    steps.begin(0)
    steps.rollout_taken(0, kept=False)
    steps.rollout_taken(1)
    steps.updated(1)
    assert [row[:4] for row in rows(trace, tmp_path)] == [
        ("r.0-0/0", "DISCARDED", "BUFFER_SAMPLE", "dropped_too_old"),
        ("r.0-1/0", "RUNNING", "BUFFER_SAMPLE", "sampled_from_replay_buffer"),
        ("r.0-1/0", "COMPLETE", "TRAIN_UPDATE", "actor_parameters_updated"),
    ]


def test_segments_of_the_replay_are_trained_when_drawn_and_lost_when_overwritten(job, tmp_path):
    trace = job(LineStyle.DISAGG, envs=(0, 2))
    steps = StepTrace(trace)
    replay = ReplayTrace(trace, steps, replay_ticks=8)
    steps.begin(0)
    replay.gathered()
    # Ticks 0 to 7 are written; rows of environments 1 and 3 are nobody's business.
    replay.looked_at((torch.tensor([1, 2, 6, 7]), torch.tensor([2, 1, 3, 2])), 8)
    steps.updated(1)
    replay.gathered()
    replay.looked_at((torch.tensor([9]), torch.tensor([0])), 12)  # segment 0 is overwritten
    assert [row[:4] for row in rows(trace, tmp_path)] == [
        ("r.0-0/2", "RUNNING", "BUFFER_SAMPLE", "sampled_from_replay_buffer"),
        ("r.0-1/2", "RUNNING", "BUFFER_SAMPLE", "sampled_from_replay_buffer"),
        ("r.0-0/2", "COMPLETE", "TRAIN_UPDATE", "actor_parameters_updated"),
        ("r.0-1/2", "COMPLETE", "TRAIN_UPDATE", "actor_parameters_updated"),
        ("r.0-2/0", "RUNNING", "BUFFER_SAMPLE", "sampled_from_replay_buffer"),
        ("r.0-0/0", "DISCARDED", "BUFFER_SAMPLE", "overwritten"),
    ]


def test_a_failing_update_leaves_its_stage_open(job, tmp_path):
    trace = job(LineStyle.DISAGG)
    steps = StepTrace(trace)
    steps.begin(0)
    with pytest.raises(ZeroDivisionError), steps.update():
        raise ZeroDivisionError
    assert progress(trace, tmp_path)[-1] == "disagg: start update actor"


def test_without_a_trace_nothing_happens():
    steps = StepTrace.silent()
    for iteration in range(3):
        iterate(steps, iteration)
    with steps.advantages(), steps.checkpoint():
        pass
    steps.rollout_taken(0)
    steps.weights_in_use()
    replay = ReplayTrace.silent()
    replay.gathered()
    replay.looked_at(None, 0)
