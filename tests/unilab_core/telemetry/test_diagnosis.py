"""Each row of the bottleneck table fires on its own figures and on no others."""

import pytest

from unilab_core.telemetry.diagnosis import BOTTLENECKS, contract_alarm, diagnose, render_table

HEALTHY_LEARNER = {
    "wall_ms": 20.0,
    "Perf/learner_collector_wait_ms": 0.1,
    "Perf/learner_inference_ms": 1.0,
    "Perf/learner_replay_batch_wait_ms": 0.1,
    "Perf/learning_time": 0.018,
}
HEALTHY_COLLECTOR = {
    "cycle_ms": 20.0,
    "Perf/collector_learner_action_wait_ms": 2.0,
    "Perf/collector_env_step_ms": 17.0,
    "Perf/collector_replay_write_ms": 0.5,
}


def tags(learner, collector):
    return [
        f.tag for f in diagnose({**HEALTHY_LEARNER, **learner}, {**HEALTHY_COLLECTOR, **collector})
    ]


def test_a_balanced_run_has_no_findings():
    assert tags({}, {}) == []


def test_nothing_known_means_nothing_found():
    assert diagnose({}, {}) == ()
    assert diagnose({"Perf/learner_collector_wait_ms": 5.0}, {"cycle_ms": 0.0}) == ()


@pytest.mark.parametrize(
    ("learner", "collector", "tag"),
    [
        ({"Perf/learner_collector_wait_ms": 2.0}, {}, "Perf/learner_collector_wait_ms"),
        (
            {},
            {"Perf/collector_learner_action_wait_ms": 5.0},
            "Perf/collector_learner_action_wait_ms",
        ),
        ({"Perf/learner_inference_ms": 4.0}, {}, "Perf/learner_inference_ms"),
        ({"Perf/learner_replay_batch_wait_ms": 1.0}, {}, "Perf/learner_replay_batch_wait_ms"),
        ({}, {"Perf/collector_replay_write_ms": 2.0}, "Perf/collector_replay_write_ms"),
        ({"Perf/replay_ingress_h2d_submit_ms": 2.0}, {}, "Perf/replay_ingress_h2d_submit_ms"),
    ],
)
def test_each_row_fires_alone_from_its_share_on(learner, collector, tag):
    assert tags(learner, collector) == [tag]
    just_below = {k: v * 0.99 for k, v in learner.items()}
    assert tags(just_below, {k: v * 0.99 for k, v in collector.items()}) == []


def test_the_collectors_wait_is_no_cause_while_the_learner_waits_too():
    learner = {"Perf/learner_collector_wait_ms": 4.0}
    collector = {"Perf/collector_learner_action_wait_ms": 10.0}
    assert tags(learner, collector) == ["Perf/learner_collector_wait_ms"]


def test_a_background_figure_is_no_finding_beside_a_real_one():
    learner = {"Perf/replay_ingress_h2d_submit_ms": 9.0, "Perf/learner_inference_ms": 8.0}
    assert tags(learner, {}) == ["Perf/learner_inference_ms"]


def test_findings_come_heaviest_first_and_background_last():
    learner = {"Perf/replay_ingress_h2d_submit_ms": 19.0}
    collector = {
        "Perf/collector_learner_action_wait_ms": 8.0,
        "Perf/collector_replay_write_ms": 10.0,
    }
    findings = diagnose({**HEALTHY_LEARNER, **learner}, {**HEALTHY_COLLECTOR, **collector})
    assert [(f.tag, f.weight) for f in findings] == [
        ("Perf/collector_replay_write_ms", 0.5),
        ("Perf/collector_learner_action_wait_ms", 0.4),
        ("Perf/replay_ingress_h2d_submit_ms", 0.0),
    ]


def test_a_finding_says_how_much_and_where_to_look():
    (finding,) = diagnose(
        {**HEALTHY_LEARNER, "Perf/learner_collector_wait_ms": 6.8}, HEALTHY_COLLECTOR
    )
    assert finding.finding == (
        "Collector Wait 34% of Iter Wall:"
        " the learner is ready before the collector's request or data"
    )
    assert finding.check == "env step, transition post-processing, a living collector, IPC"


def test_the_docs_table_has_the_same_six_rows():
    table = render_table().splitlines()
    assert len(BOTTLENECKS) == 6
    assert len(table) == 8
    for row, line in zip(BOTTLENECKS, table[2:], strict=True):
        assert row.symptom in line
        assert row.check in line


def test_phases_beyond_their_wall_are_an_alarm():
    alarm = contract_alarm(accounted_ms=20.6, wall_ms=20.0)
    assert alarm is not None
    assert "103.0 % of Iter Wall" in alarm


@pytest.mark.parametrize(
    ("accounted_ms", "wall_ms"),
    [(20.0, 20.0), (20.0005, 20.0), (19.0, 20.0), (None, 20.0), (1.0, None)],
)
def test_a_full_or_unknown_wall_is_no_alarm(accounted_ms, wall_ms):
    assert contract_alarm(accounted_ms, wall_ms) is None
