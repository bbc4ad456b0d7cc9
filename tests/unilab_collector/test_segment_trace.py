"""What the collector writes about its traced environments, on a clock of the test."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from unilab_collector import segment_trace
from unilab_collector.segment_trace import SegmentTrace, TracedTask
from unilab_core.run.job_trace import JobTrace, TraceRhythm
from unilab_core.telemetry.rl_trace.emitter import RlTraceEmitter
from unilab_core.telemetry.rl_trace.formats import LineStyle, TraceTarget

T0_MS = 1_787_215_030_000
E, A, T = 4, 2, 10
SAC_LIKE = TraceRhythm(
    style=LineStyle.DISAGG, segment_ticks=T, iterations_per_step=2, max_iterations=8
)


class Clock:
    """Unix time in ms that only the test moves."""

    def __init__(self):
        self.ms = 0

    def time_ns(self):
        return (T0_MS + self.ms) * 1_000_000


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(segment_trace, "time", made)
    return made


@pytest.fixture
def trace(tmp_path):
    emitter = RlTraceEmitter(TraceTarget(tmp_path, False), job_id="j", trace_every=2)
    job = JobTrace(emitter=emitter, rhythm=SAC_LIKE, prefix="r.0", traced_envs=(0, 2))
    yield SegmentTrace(job, TracedTask("walk (test)", 5), actor="Learner")
    emitter.close()


def result(reward=0.5, terminated=(), truncated=()):
    ends = [np.isin(np.arange(E), envs) for envs in (terminated, truncated)]
    return SimpleNamespace(
        reward=np.full(E, reward, np.float32), terminated=ends[0], truncated=ends[1]
    )


def tick(trace, clock, *, version=0, act_ms=3, env_ms=7, **ends):
    """One vector step through the slot: 1 ms to publish, then act and step."""
    trace.opened()
    clock.ms += 1
    trace.asked()
    clock.ms += act_ms
    trace.acted(version)
    clock.ms += env_ms
    trace.stepped()
    trace.took(np.full((E, A), 0.25), result(**ends))


def rows(tmp_path, sample_id):
    (path,) = tmp_path.glob("sample/*.csv")
    found = []
    for line in path.read_text().splitlines():
        _, _, name, status, unix_ms, content = line.split(",", 5)
        if name == sample_id:
            keys = dict(part.split("=", 1) for part in content.split("|"))
            event = (int(unix_ms) - T0_MS, keys["stage"], keys["detail"], keys["global_step"])
            found.append((*event, status))
    return found


def test_a_segment_goes_from_the_prompt_to_the_score(trace, clock, tmp_path):
    for _ in range(T):
        tick(trace, clock, version=4)
    trace.publish()
    trace._trace.emitter.flush()
    step = "3"  # version 4 has had two steps of two iterations
    prompt = (0, "DATA_PREPROCESS", "uid_generated", step, "RUNNING")
    assert rows(tmp_path, "r.0-0/sample") == [prompt]
    events = [event[:3] for event in rows(tmp_path, "r.0-0/2")]
    # A tick takes 11 ms. The actor's work begins with its first answer, at 4 ms.
    assert events == [
        (1, "ROLLOUT_DISPATCH", "dispatched_to_worker"),
        (4, "ROLLOUT_START", "agent_started_policy_version=4"),
        (4, "ROLLOUT_GENERATE", "generation_started"),
        (7 * 11 + 4, "ROLLOUT_GENERATE", "generation_finished"),
        (8 * 11, "ROLLOUT_TOOL", "environment_stepped_steps=8"),
        (8 * 11 + 1, "ROLLOUT_GENERATE", "generation_started"),
        (9 * 11 + 4, "ROLLOUT_GENERATE", "generation_finished"),
        (10 * 11, "ROLLOUT_TOOL", "environment_stepped_steps=2"),
        (10 * 11, "ROLLOUT_FINISH", "rollout_finished"),
        (10 * 11, "ROLLOUT_REWARD", "reward_score_computed_score=5"),
    ]
    assert {event[3] for event in rows(tmp_path, "r.0-0/2")} == {step}
    assert rows(tmp_path, "r.0-0/1") == []


def test_the_trajectory_has_the_turns_with_their_times(trace, clock, tmp_path):
    for index in range(T):
        tick(trace, clock, terminated=(2,) if index == 9 else ())
    trace.publish()
    trace._trace.emitter.flush()
    (path,) = tmp_path.glob("trajectory/*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["prompt_uid"], line["sample_index"]) for line in lines] == [
        ("r.0-0", 0),
        ("r.0-0", 2),
    ]
    inner = json.loads(lines[1]["raw_message"])
    first, last = inner["turns"]
    # Of the first eight answers seven took 3 ms; the first of all is where the clock starts.
    assert (first["completion_time_ms"], first["observation_time_ms"]) == (21.0, 56.0)
    assert (last["completion_time_ms"], last["observation_time_ms"]) == (6.0, 14.0)
    assert (first["finish_reason"], last["finish_reason"]) == ("length", "stop")
    assert last["observation_text"] == "reward +1 in 2 steps; episode ended: terminated"
    assert first["completion_text"] == "action [+0.250, +0.250]"
    assert inner["total_time_ms"] == 110.0
    assert inner["agent_metrics"]["reward_score"] == 5.0
    assert inner["n_samples"] == 2
    (progress,) = tmp_path.glob("progress/*.log")
    assert progress.read_text().splitlines() == [
        "Task r.0-0/0 is completed, score=5.0 status=Finished",
        "Task r.0-0/2 is completed, score=5.0 status=Terminated",
    ]


def test_a_rollout_of_the_ring_starts_when_its_own_policy_is_asked(trace, clock, tmp_path):
    trace.opened()
    clock.ms = 40  # waited for a free slot
    trace.dispatched()
    clock.ms = 45  # took the newest weights
    trace.asked()
    clock.ms = 47
    trace.acted(6)
    trace.publish()
    trace._trace.emitter.flush()
    assert [event[:2] for event in rows(tmp_path, "r.0-0/0")] == [
        (40, "ROLLOUT_DISPATCH"),
        (45, "ROLLOUT_START"),
    ]


def test_what_is_complete_is_written_before_the_segment_ends(trace, clock, tmp_path):
    for _ in range(9):
        tick(trace, clock)
        trace.publish()
    trace._trace.emitter.flush()
    stages = [event[1] for event in rows(tmp_path, "r.0-0/0")]
    assert stages.count("ROLLOUT_TOOL") == 1
    assert "ROLLOUT_FINISH" not in stages


def test_segments_are_numbered_and_an_open_one_is_cancelled(trace, clock, tmp_path):
    for _ in range(T + 1):
        tick(trace, clock)
    trace.cancelled()
    trace._trace.emitter.flush()
    assert rows(tmp_path, "r.0-0/0")[-1][1:3] == ("ROLLOUT_REWARD", "reward_score_computed_score=5")
    last = rows(tmp_path, "r.0-1/0")[-1]
    assert (last[1], last[2], last[4]) == ("ROLLOUT_FINISH", "cancelled_run_ended", "CANCELLED")


def test_a_segment_that_nobody_acted_in_leaves_no_rows(trace, clock, tmp_path):
    trace.opened()
    trace.asked()
    trace.cancelled()
    trace._trace.emitter.flush()
    assert list(tmp_path.glob("sample/*")) == []


def test_without_a_trace_nothing_happens(clock):
    silent = SegmentTrace.silent()
    for _ in range(2 * T):
        tick(silent, clock)
    silent.publish()
    silent.cancelled()
    assert silent._segment is None
    assert silent._done == []
