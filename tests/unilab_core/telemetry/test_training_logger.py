"""One submit gives the sinks canonical scalars and the ring one record; mistakes are errors."""

import math

import numpy as np
import pytest

from unilab_core.telemetry import metric_schema as schema
from unilab_core.telemetry.records import (
    CollectorReport,
    IterationReport,
    Note,
    RunInfo,
    parse_record,
)
from unilab_core.telemetry.training_logger import IterationSample, TrainingLogger
from unilab_ipc.memory import local_segment
from unilab_ipc.metric_queue import RingReader, RingWriter, ring_dims
from unilab_ipc.segments import METRIC_QUEUE

SECOND = 1_000_000_000


class ListSink:
    def __init__(self):
        self.rows = []
        self.dropped_count = 0
        self.closed_with_s = None

    def write(self, step, wall_time_s, scalars):
        self.rows.append((step, scalars))

    def close(self, timeout_s):
        self.closed_with_s = timeout_s
        return True


class ListRing:
    def __init__(self):
        self.records = []
        self.dropped_count = 0

    def write(self, record):
        self.records.append(record)
        return True

    def of(self, kind):
        return [r for r in map(parse_record, self.records) if isinstance(r, kind)]


class Clock:
    def __init__(self):
        self.now = 100 * SECOND

    def __call__(self):
        return self.now


def run_info(**changes):
    fields = {
        "job": "j",
        "algo": "sac",
        "task": "t",
        "sim": "mujoco",
        "run_dir": "/r",
        "device": "cpu",
        "num_gpus": 0,
        "max_iterations": 1000,
        "num_envs": 64,
        "batch_per_rank": 256,
        **changes,
    }
    return RunInfo(**fields)


LEARNER = {
    "Perf/learner_collector_wait_ms": 1.0,
    "Perf/learner_inference_ms": 2.0,
    "Perf/learner_inference_h2d_ms": 0.5,
    "Perf/learner_inference_forward_ms": 1.0,
    "Perf/learner_inference_d2h_ms": 0.25,
    "Perf/learner_collector_release_ms": 0.25,
    "Perf/learner_replay_batch_wait_ms": 0.5,
    "Perf/learner_replay_sample_ms": 0.25,
    "Perf/learning_time": 0.015,
}
"""The phases add up to 19 ms; the three details are not added again."""

METRICS = {
    tag: 0.5
    for tag in schema.expected_tags("sac") - schema.LOGGER_OWNED
    if schema.METRICS[tag].part == "value"
}


def collector_record(**changes):
    timing = {m.tag: 1.0 for m in schema.collector_phases("sac")}
    timing |= {m.tag: 0.1 for m in schema.details_of("Perf/collector_env_step_ms")}
    gauges = {
        t: 0
        for t, m in schema.METRICS.items()
        if t.startswith("Perf/collector_inference_") and m.unit != "ms"
    }
    fields = {
        "rank": 0,
        "t_ns": 1,
        "tick": 1,
        "env_steps": 64,
        "timing": timing,
        "cycle_ms": 6.0,
        "wall_ms": 6.1,
        "inference": gauges,
        "episodes_completed": 3,
        "timeouts": 1,
        "mean_return": 12.5,
        "mean_length": 80.0,
        "rewards": {"reward/upright": 0.5},
        "terminations": {"Episode_Termination/fell": 2.0},
        "terminations_total": {"Episode_Termination/fell": 2.0},
        **changes,
    }
    return CollectorReport(**fields).record()


def sample(iteration=1, **changes):
    fields = {
        "iteration": iteration,
        "env_steps": 64 * iteration,
        "wall_s": 0.02,
        "learner": dict(LEARNER),
        "metrics": dict(METRICS),
        "env_steps_delta": 64,
        "collector": [collector_record()],
        "replay_rows": 512,
        "buffer_rows": 64 * iteration,
        **changes,
    }
    return IterationSample(**fields)


def make(**changes):
    sink, ring, clock = ListSink(), ListRing(), Clock()
    logger = TrainingLogger(run_info(**changes), [sink], ring, now_ns=clock)
    return logger, sink, ring, clock


def test_a_full_sac_iteration_writes_each_documented_tag_and_no_other():
    logger, sink, _, _ = make()
    logger.submit(sample())
    ((step, scalars),) = sink.rows
    assert step == 64
    assert scalars.keys() == schema.expected_tags("sac") | {
        "reward/upright",
        "Episode_Termination/fell",
    }
    schema.validate_record("sac", scalars, accelerator=False)


def test_the_derived_scalars_are_right():
    logger, sink, _, _ = make()
    logger.submit(sample(iteration=7))
    scalars = sink.rows[0][1]
    assert scalars["Train/iteration"] == 7.0
    assert scalars["Train/mean_reward"] == 12.5
    assert scalars["Train/mean_episode_length"] == 80.0
    assert scalars["Episode/timeout_rate"] == pytest.approx(1 / 3)
    assert scalars["Perf/total_fps"] == 3200.0
    assert scalars["Perf/iteration_time"] == 0.02
    assert scalars["reward/upright"] == 0.5
    assert scalars["Episode_Termination/fell"] == 2.0


def test_the_ring_gets_one_record_with_what_is_only_shown():
    logger, _, ring, clock = make()
    logger.submit(sample())
    (report,) = ring.of(IterationReport)
    assert report.t_ns == clock.now
    assert report.wall_ms == 20.0
    assert report.accounted_ms == pytest.approx(19.0)
    assert report.other_ms == pytest.approx(1.0)
    assert report.rows_per_s == 25600.0
    assert report.learner == LEARNER
    assert report.metrics == METRICS
    assert report.buffer == 64
    assert report.status == "Training"


def test_shown_only_figures_never_reach_a_sink():
    logger, sink, _, _ = make()
    logger.submit(sample())
    assert not [tag for tag in sink.rows[0][1] if "other" in tag or "rows" in tag or "pct" in tag]


def test_values_are_not_smoothed():
    logger, sink, _, _ = make()
    for iteration, loss in enumerate([1.0, 100.0, 1.0], start=1):
        logger.submit(sample(iteration, metrics={**METRICS, "Loss/critic": loss}))
    assert [row["Loss/critic"] for _, row in sink.rows] == [1.0, 100.0, 1.0]


def test_episode_tags_are_absent_before_the_first_episode():
    logger, sink, _, _ = make()
    nothing = collector_record(episodes_completed=0, timeouts=0, mean_return=None, mean_length=None)
    logger.submit(sample(collector=[nothing]))
    assert not sink.rows[0][1].keys() & {
        "Train/mean_reward",
        "Train/mean_episode_length",
        "Episode/timeout_rate",
    }


def test_an_iteration_without_a_report_writes_no_collector_times():
    logger, sink, _, _ = make()
    logger.submit(sample(collector=[]))
    assert not [tag for tag in sink.rows[0][1] if tag.startswith(("Perf/collector", "reward/"))]


def test_without_a_measured_wall_the_accounted_time_stands_in_but_is_not_written():
    logger, sink, ring, _ = make()
    logger.submit(sample(wall_s=None))
    scalars = sink.rows[0][1]
    assert "Perf/iteration_time" not in scalars
    assert scalars["Perf/total_fps"] == pytest.approx(64 / 0.019)
    (report,) = ring.of(IterationReport)
    assert report.wall_ms is None
    assert report.other_ms == pytest.approx(0.0)


def test_the_step_axis_is_the_iteration_until_there_are_env_steps():
    logger, sink, _, _ = make()
    logger.submit(sample(1, env_steps=0, env_steps_delta=0))
    logger.submit(sample(2, env_steps=128))
    assert [step for step, _ in sink.rows] == [1, 128]
    assert "Train/iteration" not in sink.rows[0][1]
    assert sink.rows[1][1]["Train/iteration"] == 2.0


def test_the_log_interval_thins_and_the_last_iteration_is_written_on_close():
    logger, sink, ring, _ = make(log_interval=5)
    for iteration in range(1, 13):
        logger.submit(sample(iteration))
    assert [step for step, _ in sink.rows] == [5 * 64, 10 * 64]
    assert logger.close(timeout_s=1.0)
    assert [step for step, _ in sink.rows] == [5 * 64, 10 * 64, 12 * 64]
    assert len(ring.of(IterationReport)) == 12, "monitors get every iteration"


def test_a_written_last_iteration_is_not_written_twice():
    logger, sink, _, _ = make(log_interval=5)
    for iteration in range(1, 11):
        logger.submit(sample(iteration))
    logger.close(timeout_s=1.0)
    logger.close(timeout_s=1.0)
    assert [step for step, _ in sink.rows] == [5 * 64, 10 * 64]


def test_sinks_share_one_closing_time():
    logger, sink, _, _ = make()
    logger.close(timeout_s=1.5)
    assert sink.closed_with_s == 1.5


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"Loss/unheard_of": 1.0}, "not in metric schema"),
        ({"Loss/surrogate": 1.0}, "no place in this sac run"),
        ({"Train/mean_reward": 1.0}, "the training logger derives"),
        ({"Perf/learning_time": 1.0}, "the training logger derives"),
        ({"Perf/collector_env_step_ms": 1.0}, "the training logger derives"),
        ({"Perf/replay_ingress_h2d_submit_ms": 1.0}, "no place in this sac run"),
        ({"Perf/dp_gradient_sync_calls_per_rank": 1.0}, "no place in this sac run"),
        ({"reward/upright": 1.0}, "collector's reports only"),
        ({"Episode_Reward/upright": 1.0}, "not in metric schema"),
        ({"Perf/learner_inference_ms": 1.0}, "submitted twice"),
        ({"Loss/critic": True}, "expected a number"),
        ({"Loss/critic": np.zeros(())}, "expected a number"),
    ],
)
def test_a_metric_that_breaks_the_schema_is_an_error(metrics, message):
    logger, _, _, _ = make()
    with pytest.raises(ValueError, match=message):
        logger.submit(sample(metrics=metrics))


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        ({**LEARNER, "Perf/learner_nap_ms": 1.0}, "Perf/learner_nap_ms"),
        ({**LEARNER, "Perf/learner_replay_stage_ms": 1.0}, "Perf/learner_replay_stage_ms"),
        ({**LEARNER, "Perf/iteration_time": 1.0}, "Perf/iteration_time"),
        ({**LEARNER, "Perf/replay_ingress_h2d_submit_ms": 1.0}, "h2d_submit"),
        ({"Perf/learner_inference_ms": 1.0}, "lack 'Perf/learning_time'"),
    ],
)
def test_a_learner_time_outside_the_schema_is_an_error(learner, message):
    logger, _, _, _ = make()
    with pytest.raises(ValueError, match=message):
        logger.submit(sample(learner=learner))


def test_an_accelerator_run_may_report_its_submission_time():
    logger, sink, ring, _ = make(device="cuda:0", num_gpus=1)
    logger.submit(sample(learner={**LEARNER, "Perf/replay_ingress_h2d_submit_ms": 3.0}))
    assert sink.rows[0][1]["Perf/replay_ingress_h2d_submit_ms"] == 3.0
    (report,) = ring.of(IterationReport)
    assert report.accounted_ms == pytest.approx(19.0), "a background time is not added"


def test_non_finite_metrics_are_written():
    logger, sink, _, _ = make()
    logger.submit(sample(metrics={**METRICS, "Loss/critic": math.nan, "Loss/actor": math.inf}))
    assert math.isnan(sink.rows[0][1]["Loss/critic"])
    assert sink.rows[0][1]["Loss/actor"] == math.inf


def test_phases_beyond_the_wall_clamp_other_and_raise_the_alarm_once_in_ten_seconds(caplog):
    logger, _, ring, clock = make()
    for iteration in range(1, 4):
        logger.submit(sample(iteration, wall_s=0.018))
        clock.now += SECOND
    assert logger.alarm_count == 3
    assert [r.other_ms for r in ring.of(IterationReport)] == [0.0, 0.0, 0.0]
    (note,) = ring.of(Note)
    assert note.level == "warning"
    assert "105.6 % of Iter Wall" in note.text
    assert len(caplog.records) == 1
    clock.now += 10 * SECOND
    logger.submit(sample(4, wall_s=0.018))
    assert len(ring.of(Note)) == 2


def test_static_facts_are_repeated_for_late_monitors():
    logger, _, ring, clock = make()
    assert len(ring.of(RunInfo)) == 1
    logger.mark_trainable(clock.now)
    assert [r.trainable_ns for r in ring.of(RunInfo)] == [None, clock.now]
    for iteration in range(1, 12):
        clock.now += SECOND
        logger.submit(sample(iteration))
    assert len(ring.of(RunInfo)) == 4


def test_the_warm_up_is_shown_but_not_logged():
    logger, sink, ring, clock = make()
    logger.report_status("Warm-up", env_steps=64, buffer_rows=64)
    logger.report_status("Warm-up", env_steps=128, buffer_rows=128)
    clock.now += SECOND
    logger.report_status("Warm-up", env_steps=192, buffer_rows=192)
    assert [(r.iteration, r.env_steps, r.status) for r in ring.of(IterationReport)] == [
        (0, 64, "Warm-up"),
        (0, 192, "Warm-up"),
    ]
    logger.close(timeout_s=1.0)
    assert sink.rows == []


def test_lost_records_are_counted_over_sinks_and_ring_and_shown():
    logger, sink, ring, _ = make()
    sink.dropped_count, ring.dropped_count = 3, 4
    logger.submit(sample())
    assert logger.dropped_count == 7
    assert ring.of(IterationReport)[0].dropped == 7


def test_a_logger_without_a_ring_works():
    sink = ListSink()
    logger = TrainingLogger(run_info(), [sink], None)
    logger.note("nobody listens")
    logger.submit(sample())
    assert len(sink.rows) == 1


def test_the_summary_holds_final_best_and_tail_figures():
    logger, _, _, _ = make()
    assert logger.summary()["final_mean_reward"] is None
    assert logger.summary()["tail_env_steps_per_sec"] is None
    for iteration, (reward, wall_s) in enumerate([(1.0, 0.02), (9.0, 0.02), (5.0, 0.06)], start=1):
        collector = [collector_record(mean_return=reward)]
        logger.submit(sample(iteration, collector=collector, wall_s=wall_s))
    summary = logger.summary()
    assert summary["completed_iterations"] == 3
    assert summary["total_env_steps"] == 192
    assert summary["final_mean_reward"] == 5.0
    assert summary["best_mean_reward"] == 9.0
    assert summary["mean_episode_length"] == 80.0
    assert summary["final_env_steps_per_sec"] == pytest.approx(64 / 0.06)
    assert summary["tail_env_steps_per_sec"] == pytest.approx(192 / 0.1)
    assert summary["tail_iteration_count"] == 3
    assert summary["tail_window_iterations"] == 100
    assert summary["final_cycle_wall_ms"] == pytest.approx(60.0)
    assert summary["final_inference_ms"] == 2.0
    assert summary["final_inference_h2d_ms"] == 0.5


def test_a_log_interval_below_one_is_an_error():
    with pytest.raises(ValueError, match="log_interval"):
        make(log_interval=0)


def test_records_pass_through_a_real_ring_to_any_reader():
    ring = local_segment(METRIC_QUEUE, ring_dims(1 << 16))
    logger = TrainingLogger(run_info(), [], RingWriter(ring))
    logger.submit(sample())
    reports = [parse_record(record) for record in RingReader(ring).read()]
    assert [type(report) for report in reports] == [RunInfo, IterationReport]
    assert reports[1].metrics == METRICS
    assert logger.dropped_count == 0
