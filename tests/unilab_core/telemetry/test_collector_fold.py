"""Collector reports of one iteration become canonical scalars, by hand-computed numbers."""

import pytest

from unilab_core.telemetry.collector_fold import CollectorFold, aggregate
from unilab_core.telemetry.records import CollectorReport, RecordError

ENV_STEP = "Perf/collector_env_step_ms"
IN_FLIGHT = "Perf/collector_inference_in_flight"
MAX_IN_FLIGHT = "Perf/collector_inference_max_in_flight"


def record(**changes):
    fields = {
        "rank": 0,
        "t_ns": 1,
        "tick": 1,
        "env_steps": 64,
        "timing": {},
        "cycle_ms": 1.0,
        "wall_ms": 1.0,
        "inference": {},
        "episodes_completed": 0,
        "timeouts": 0,
        "mean_return": None,
        "mean_length": None,
        "rewards": {},
        "terminations": {},
        "terminations_total": {},
        **changes,
    }
    return CollectorReport(**fields).record()


def test_times_and_rewards_are_means_over_the_reports_of_the_iteration():
    figures = CollectorFold("sac").update(
        [
            record(timing={ENV_STEP: 2.0}, rewards={"reward/a": 1.0, "reward/b": 5.0}),
            record(timing={ENV_STEP: 4.0}, rewards={"reward/a": 2.0}),
        ]
    )
    assert figures.perf == {ENV_STEP: 3.0}
    assert figures.rewards == {"reward/a": 1.5, "reward/b": 5.0}


def test_gauges_are_the_last_value_and_their_maxima_the_largest():
    figures = CollectorFold("sac").update(
        [
            record(inference={IN_FLIGHT: 1, MAX_IN_FLIGHT: 3}),
            record(inference={IN_FLIGHT: 0, MAX_IN_FLIGHT: 2}),
        ]
    )
    assert figures.perf == {IN_FLIGHT: 0, MAX_IN_FLIGHT: 3}


def test_nothing_is_known_before_the_first_report():
    figures = CollectorFold("sac").update([])
    assert figures.perf == figures.rewards == figures.terminations == {}
    assert figures.mean_reward is figures.mean_episode_length is figures.timeout_rate is None


def test_the_timeout_rate_appears_with_the_first_completion_and_stays():
    fold = CollectorFold("sac")
    rates = [
        fold.update([record(episodes_completed=completed, timeouts=timeouts)]).timeout_rate
        for completed, timeouts in [(0, 0), (4, 1), (4, 1), (9, 4), (10, 4)]
    ]
    assert rates == [None, 0.25, 0.25, 0.6, 0.0]


def test_a_lost_report_biases_neither_rate_nor_termination_counts():
    def totals(fell):
        return {"Episode_Termination/fell": float(fell)}

    complete, lossy = CollectorFold("sac"), CollectorFold("sac")
    reports = [
        record(episodes_completed=2, timeouts=1, terminations_total=totals(1)),
        record(episodes_completed=5, timeouts=1, terminations_total=totals(4)),
        record(episodes_completed=8, timeouts=2, terminations_total=totals(6)),
    ]
    seen = complete.update(reports)
    assert lossy.update([reports[0], reports[2]]) == seen
    assert seen.timeout_rate == 0.25
    assert seen.terminations == {"Episode_Termination/fell": 6.0}
    assert complete.update([reports[2]]).terminations == {"Episode_Termination/fell": 0.0}


def test_the_latest_episode_means_stay_known_between_reports():
    fold = CollectorFold("sac")
    fold.update([record(mean_return=3.0), record(mean_return=4.0, mean_length=100.0)])
    figures = fold.update([])
    assert figures.mean_reward == 4.0
    assert figures.mean_episode_length == 100.0


def test_an_episode_length_of_zero_is_not_written():
    assert CollectorFold("sac").update([record(mean_length=0.0)]).mean_episode_length is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timing": {"Perf/collector_nap_ms": 1.0}}, "unknown timing key 'Perf/collector_nap_ms'"),
        ({"timing": {"Perf/learner_inference_ms": 1.0}}, "unknown timing key"),
        ({"timing": {"Perf/collector_mlp_infer_ms": 1.0}}, "unknown timing key"),
        ({"timing": {IN_FLIGHT: 1.0}}, "unknown timing key"),
        ({"inference": {ENV_STEP: 1.0}}, "unknown inference key"),
        ({"inference": {IN_FLIGHT: -1}}, "expected a finite number >= 0"),
        ({"inference": {IN_FLIGHT: float("nan")}}, "expected a finite number >= 0"),
        ({"rewards": {"reward/mean": 1.0}}, "reserved"),
        ({"rewards": {"reward/": 1.0}}, "not a term name"),
        ({"rewards": {"reward/reward/x": 1.0}}, "not a term name"),
        ({"rewards": {"upright": 1.0}}, "does not start with 'reward/'"),
        ({"rewards": {f"reward/t{i}": 1.0 for i in range(257)}}, "more than 256 terms"),
        ({"terminations_total": {"reward/x": 1.0}}, "does not start with 'Episode_Termination/'"),
    ],
)
def test_what_the_schema_does_not_know_is_an_error(changes, message):
    with pytest.raises(ValueError, match=message):
        CollectorFold("sac").update([record(**changes)])


def test_a_bool_among_the_gauges_is_an_error():
    with pytest.raises(RecordError):
        CollectorFold("sac").update([record(inference={IN_FLIGHT: True})])


def test_reward_terms_are_bounded_over_the_whole_run():
    fold = CollectorFold("sac")
    for i in range(256):
        fold.update([record(rewards={f"reward/t{i}": 1.0})])
    with pytest.raises(ValueError, match="more than 256 terms"):
        fold.update([record(rewards={"reward/t256": 1.0})])


def test_appo_reports_its_own_three_times():
    timing = {
        "Perf/collector_mlp_infer_ms": 0.5,
        ENV_STEP: 2.0,
        "Perf/collection_time": 0.08,
    }
    assert CollectorFold("appo").update([record(timing=timing)]).perf == timing


def test_an_aggregate_of_no_tables_is_empty():
    assert aggregate([]) == {}
