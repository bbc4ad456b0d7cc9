"""Rows of the two time lines. Percentages are computed by hand from synthetic_job's figures."""

import pytest
from synthetic_job import SECOND, collector, fold, iteration, run_info

from unilab_monitor.timing import collector_rows, learner_rows

T = 100 * SECOND


def view_of(timing=None, algo="sac", **learner):
    changes = {} if timing is None else {"timing": timing}
    return fold(
        learner=[run_info(algo=algo), iteration(T, 1, **learner)],
        collector=[collector(T, 1, **changes)],
        now_ns=T,
    )


def with_timing(**changes):
    timing = dict(collector(T, 1).timing)
    return {**timing, **{f"Perf/collector_{name}_ms": value for name, value in changes.items()}}


def test_learner_rows_of_sac_are_the_seven_phases_other_and_the_wall():
    rows = learner_rows(view_of())
    assert [row.label for row in rows] == [
        "Collector Wait",
        "Inference",
        "Collector Release",
        "Replay Batch Wait",
        "Replay Sample",
        "Learning",
        "Other",
        "Iter Wall",
    ]
    assert [row.ms for row in rows] == pytest.approx([0.1, 0.6, 0.2, 0.1, 1.0, 18.0, 0.4, 20.4])
    assert [row.pct for row in rows] == pytest.approx(
        [100 * ms / 20.4 for ms in (0.1, 0.6, 0.2, 0.1, 1.0, 18.0, 0.4)] + [100.0]
    )
    assert sum(row.pct for row in rows[:-1]) == pytest.approx(100.0)


def test_appo_rows_have_stage_and_publish_and_the_collector_ms_only():
    view = view_of(
        algo="appo",
        learner={
            "Perf/learner_collector_wait_ms": 1.0,
            "Perf/learner_replay_stage_ms": 2.0,
            "Perf/learner_replay_sample_ms": 1.0,
            "Perf/learning_time": 0.012,
            "Perf/learner_weight_publish_ms": 2.0,
        },
        timing={
            "Perf/collector_mlp_infer_ms": 0.5,
            "Perf/collector_env_step_ms": 3.0,
            "Perf/collection_time": 0.096,
        },
    )
    assert [row.label for row in learner_rows(view)] == [
        "Collector Wait",
        "Replay Stage",
        "Replay Sample",
        "Learning",
        "Weight Publish",
        "Other",
        "Iter Wall",
    ]
    rows = collector_rows(view)
    assert [(row.label, row.ms, row.pct) for row in rows] == [
        ("MLP Infer", 0.5, None),
        ("Env Step", 3.0, None),
        ("Rollout Wall", 96.0, None),
    ]


def test_collector_wait_is_red_above_one_millisecond_and_learning_is_green():
    def style(wait_ms):
        learner = {**iteration(T, 1).learner, "Perf/learner_collector_wait_ms": wait_ms}
        rows = {row.label: row.style for row in learner_rows(view_of(learner=learner))}
        return rows["Collector Wait"], rows["Learning"]

    assert style(1.0) == ("warn", "good")
    assert style(1.01) == ("bad", "good")


def test_quiet_rows_appear_from_one_percent_of_the_cycle():
    # The cycle is 20 ms: 0.2 ms is 1 %.
    below = collector_rows(view_of(with_timing(inference_request=0.19)))
    assert "Inference Request" not in [row.label for row in below]
    above = collector_rows(view_of(with_timing(inference_request=0.21)))
    assert "Inference Request" in [row.label for row in above]
    assert "Metrics Publish" not in [row.label for row in above]  # 0.1 ms


def test_core_rows_stay_however_small_they_are():
    rows = collector_rows(
        view_of(with_timing(replay_write=0.0, env_step=0.0, learner_action_wait=0.001))
    )
    labels = [row.label for row in rows]
    assert {"Learner Action Wait", "Env Step", "Replay Write"} <= set(labels)


def test_the_last_visible_child_closes_the_tree_whatever_is_hidden():
    def trees(**details):
        rows = collector_rows(view_of(with_timing(**details)))
        return [(row.label, row.tree) for row in rows if row.tree != "none"]

    assert trees() == [("Backend Step", "child"), ("Update State", "last")]
    assert trees(env_step_reset_done=0.5) == [
        ("Backend Step", "child"),
        ("Update State", "child"),
        ("Reset Done", "last"),
    ]
    assert trees(env_step_update_state=0.0) == [("Backend Step", "last")]
    assert trees(env_step_update_state=0.0, env_step_backend=0.0) == []


def test_percentages_are_shares_of_the_cycle_and_wall_and_other_are_ms_only():
    rows = {row.label: row for row in collector_rows(view_of())}
    assert rows["Learner Action Wait"].pct == pytest.approx(75.0)
    assert rows["Env Step"].pct == pytest.approx(17.5)
    assert rows["Backend Step"].pct == pytest.approx(13.0)
    assert (rows["Other"].ms, rows["Other"].pct) == (pytest.approx(0.3), None)
    assert (rows["Cycle Wall"].ms, rows["Cycle Wall"].pct) == (pytest.approx(20.3), None)


def test_without_all_six_phases_no_percent_is_shown():
    timing = with_timing()
    del timing["Perf/collector_transition_extract_ms"]
    rows = collector_rows(view_of(timing))
    assert all(row.pct is None for row in rows)
    assert [row.label for row in rows if row.tree != "none"] == []


def test_an_unknown_algorithm_still_has_its_wall():
    rows = learner_rows(view_of(algo="dreamer"))
    assert [(row.label, row.ms) for row in rows] == [
        ("Other", pytest.approx(0.4)),
        ("Iter Wall", 20.4),
    ]
