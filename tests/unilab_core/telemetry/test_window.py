"""Means over two seconds, reward peak and trend, tail throughput: all by hand."""

import math

import pytest

from unilab_core.telemetry.records import CollectorReport, IterationReport
from unilab_core.telemetry.window import (
    RewardHistory,
    SampleWindow,
    TailThroughput,
    collector_sample,
    iteration_sample,
)

SECOND = 1_000_000_000


def test_a_figure_is_the_mean_over_the_samples_that_have_it():
    window = SampleWindow()
    window.add(0, {"a": 1.0, "b": 10.0})
    window.add(1, {"a": 2.0})
    window.add(2, {"a": 6.0, "b": 20.0})
    assert window.means() == {"a": 3.0, "b": 15.0}
    assert window.count == 3


def test_samples_older_than_two_seconds_leave():
    window = SampleWindow()
    window.add(0, {"a": 100.0})
    window.add(1 * SECOND, {"a": 1.0})
    window.add(2 * SECOND, {"a": 2.0})
    assert window.count == 3, "exactly two seconds old still counts"
    window.add(2 * SECOND + 1, {"a": 3.0})
    assert window.count == 3
    assert window.means() == {"a": 2.0}


def test_a_source_that_stopped_keeps_its_last_window_and_shows_its_age():
    window = SampleWindow()
    assert window.age_s(5) is None
    window.add(3 * SECOND, {"a": 4.0})
    assert window.means() == {"a": 4.0}
    assert window.age_s(7 * SECOND) == 4.0
    assert window.age_s(2 * SECOND) == 0.0, "an age is never negative"


def test_at_most_512_samples_are_kept():
    window = SampleWindow()
    for i in range(600):
        window.add(i, {"i": float(i)})
    assert window.count == 512
    assert window.means() == {"i": (88 + 599) / 2}


def test_an_empty_window_has_no_figures():
    window = SampleWindow()
    assert window.means() == {}
    assert window.newest_ns is None
    window.add(1, {"a": 1.0})
    window.clear()
    assert window.count == 0


def test_one_non_finite_sample_shows_in_the_mean():
    window = SampleWindow()
    window.add(0, {"a": 1.0})
    window.add(1, {"a": math.nan})
    assert math.isnan(window.means()["a"])


def test_an_iteration_becomes_tags_and_derived_figures():
    report = IterationReport(
        t_ns=1,
        iteration=5,
        env_steps=320,
        wall_ms=20.0,
        accounted_ms=19.0,
        other_ms=1.0,
        learner={"Perf/learning_time": 0.015},
        metrics={"Loss/critic": 3.0},
        rewards={"reward/upright": 0.5},
        steps_per_s=3200.0,
        buffer=320,
    )
    assert iteration_sample(report) == {
        "Perf/learning_time": 0.015,
        "Perf/iteration_time": 0.02,
        "Loss/critic": 3.0,
        "reward/upright": 0.5,
        "wall_ms": 20.0,
        "accounted_ms": 19.0,
        "other_ms": 1.0,
        "steps_per_s": 3200.0,
        "buffer": 320,
    }


def test_an_unmeasured_wall_is_the_accounted_time_and_writes_no_iteration_time():
    sample = iteration_sample(IterationReport(t_ns=1, iteration=5, env_steps=0, accounted_ms=19.0))
    assert sample == {"wall_ms": 19.0, "accounted_ms": 19.0}


def collector(cycle_ms, wall_ms):
    return CollectorReport(
        rank=0,
        t_ns=1,
        tick=1,
        env_steps=64,
        timing={"Perf/collector_env_step_ms": 2.0},
        cycle_ms=cycle_ms,
        wall_ms=wall_ms,
        inference={"Perf/collector_inference_in_flight": 1},
        episodes_completed=0,
        timeouts=0,
        mean_return=None,
        mean_length=None,
        rewards={},
        terminations={},
        terminations_total={},
    )


@pytest.mark.parametrize(
    ("cycle_ms", "wall_ms", "other_ms"), [(18.0, 19.5, 1.5), (20.0, 19.5, 0.0)]
)
def test_the_collectors_other_is_its_wall_without_its_cycle(cycle_ms, wall_ms, other_ms):
    assert collector_sample(collector(cycle_ms, wall_ms)) == {
        "Perf/collector_env_step_ms": 2.0,
        "Perf/collector_inference_in_flight": 1,
        "cycle_ms": cycle_ms,
        "wall_ms": wall_ms,
        "other_ms": other_ms,
    }


def test_without_a_cycle_there_is_no_other():
    assert "other_ms" not in collector_sample(collector(None, 19.5))


def history(values):
    rewards = RewardHistory()
    for value in values:
        rewards.add(value)
    return rewards


def test_the_peak_is_taken_over_the_last_200_reports():
    rewards = history([9.0] + [float(i % 5) for i in range(200)])
    assert rewards.peak == 4.0
    assert history([]).peak is None


def test_missing_and_nan_rewards_are_no_news():
    rewards = history([None, math.nan, 2.0, None])
    assert rewards.values == (2.0,)
    assert rewards.peak == 2.0


@pytest.mark.parametrize(
    ("values", "trend"),
    [
        ([1.0] * 9, None),
        ([1.0] * 10, "flat"),
        ([1.0] * 10 + [1.04] * 10, "flat"),
        ([1.0] * 10 + [1.06] * 10, "up"),
        ([1.0] * 10 + [0.94] * 10, "down"),
        ([-1.0] * 10 + [-0.9] * 10, "up"),
        ([-1.0] * 10 + [-1.1] * 10, "down"),
        ([0.0] * 10 + [0.0] * 10, "flat"),
        ([1.0] * 5 + [2.0] * 10, "up"),
    ],
)
def test_the_trend_compares_the_last_ten_with_the_ten_before(values, trend):
    assert history(values).trend == trend


def test_tail_throughput_weighs_iterations_by_their_time():
    tail = TailThroughput(window_iterations=2)
    assert tail.steps_per_s is None
    tail.add(1000, 100.0)
    tail.add(64, 0.1)
    tail.add(64, 0.3)
    assert tail.count == 2
    assert tail.steps_per_s == pytest.approx(128 / 0.4)
