"""Ring records survive the way there and back, and the parser believes nothing."""

import math
from dataclasses import replace

import msgpack
import pytest

from unilab_core.telemetry.records import (
    CollectorReport,
    IterationReport,
    Note,
    RecordError,
    RunInfo,
    parse_record,
)

COLLECTOR = CollectorReport(
    rank=0,
    t_ns=5,
    tick=7,
    env_steps=448,
    timing={"Perf/collector_env_step_ms": 2.5},
    cycle_ms=3.0,
    wall_ms=3.1,
    inference={"Perf/collector_inference_in_flight": 1},
    episodes_completed=4,
    timeouts=1,
    mean_return=12.5,
    mean_length=None,
    rewards={"reward/upright": 0.5},
    terminations={"Episode_Termination/fell": 1.0},
    terminations_total={"Episode_Termination/fell": 3.0},
    dropped={"reward": 2},
)
RUN = RunInfo(
    job="go2-1",
    algo="sac",
    task="go2_joystick_flat",
    sim="mujoco",
    run_dir="/tmp/run",
    device="cpu",
    num_gpus=0,
    max_iterations=5000,
    num_envs=64,
    batch_per_rank=1024,
)
ITERATION = IterationReport(
    t_ns=9,
    iteration=3,
    env_steps=192,
    wall_ms=20.0,
    accounted_ms=19.5,
    other_ms=0.5,
    learner={"Perf/learning_time": 0.015},
    metrics={"Loss/critic": math.inf},
    buffer=192,
)
NOTE = Note(t_ns=11, text="checkpoint saved", level="info")


@pytest.mark.parametrize(
    ("report", "record"),
    [
        (COLLECTOR, COLLECTOR.record()),
        (replace(RUN, trainable_ns=77), replace(RUN, trainable_ns=77).record(t_ns=1)),
        (RUN, RUN.record(t_ns=1)),
        (ITERATION, ITERATION.record()),
        (NOTE, NOTE.record()),
    ],
)
def test_a_report_comes_back_equal_through_msgpack(report, record):
    assert parse_record(msgpack.unpackb(msgpack.packb(record))) == report


def test_the_collector_record_has_the_agreed_form():
    assert COLLECTOR.record() == {
        "kind": "collector",
        "rank": 0,
        "t_ns": 5,
        "tick": 7,
        "env_steps": 448,
        "timing": {"Perf/collector_env_step_ms": 2.5},
        "cycle_ms": 3.0,
        "wall_ms": 3.1,
        "inference": {"Perf/collector_inference_in_flight": 1},
        "episodes": {"completed": 4, "timeouts": 1, "mean_return": 12.5, "mean_length": None},
        "rewards": {"reward/upright": 0.5},
        "terminations": {"Episode_Termination/fell": 1.0},
        "terminations_total": {"Episode_Termination/fell": 3.0},
        "dropped": {"reward": 2},
    }


def test_fields_of_a_newer_writer_are_ignored():
    assert parse_record({**NOTE.record(), "colour": "red"}) == NOTE


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        {"kind": 3},
        {"kind": ["run"]},
        {"kind": "unheard-of"},
        {"kind": "event", "t_ns": 1, "text": "x", "level": "fatal"},
        {"kind": "event", "t_ns": 1.5, "text": "x", "level": "info"},
        {"kind": "event", "t_ns": True, "text": "x", "level": "info"},
        {"kind": "event", "t_ns": 1, "text": "x" * 5000, "level": "info"},
        {"kind": "event", "t_ns": 1, "text": b"x", "level": "info"},
    ],
)
def test_what_is_no_record_of_ours_is_refused(record):
    with pytest.raises(RecordError):
        parse_record(record)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timing", None),
        ("timing", [1.0]),
        ("timing", {"a": "1.0"}),
        ("timing", {"a": True}),
        ("timing", {1: 1.0}),
        ("timing", {str(i): 1.0 for i in range(513)}),
        ("episodes", None),
        ("episodes", {"completed": 1}),
        ("rank", "0"),
        ("cycle_ms", "3"),
    ],
)
def test_a_field_of_the_wrong_form_is_refused(field, value):
    with pytest.raises(RecordError):
        parse_record({**COLLECTOR.record(), field: value})


@pytest.mark.parametrize("report", [COLLECTOR, ITERATION, NOTE])
def test_no_field_may_be_missing(report):
    for field in report.record().keys() - {"kind"}:
        record = report.record()
        del record[field]
        with pytest.raises(RecordError, match=field):
            parse_record(record)


def test_only_the_host_is_no_accelerator():
    assert not RUN.accelerator
    assert replace(RUN, device="cuda:0").accelerator
