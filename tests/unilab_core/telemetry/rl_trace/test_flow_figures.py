import numpy as np
import pytest

from unilab_core.telemetry.rl_trace.demo_trace import worked_rows

T0 = 1_787_215_000_000


def row(sample_id, ms, stage, detail, status="RUNNING", step=1, job="j"):
    content = f"from=A|to=B|stage={stage}|global_step={step}|detail={detail}"
    return f"{job},sample,{sample_id},{status},{T0 + ms},{content}\n"


@pytest.fixture
def worked(trace):
    return trace.write(a_pid1="".join(worked_rows(T0)))


def test_totals_of_the_worked_set(worked):
    totals = worked.figures()["flow"]["totals"]
    assert (totals["trajs"], totals["uids"], totals["rewarded"]) == (4, 2, 3)
    assert (totals["sampled"], totals["trained"], totals["in_flight"]) == (2, 2, 2)


def test_funnel_and_flow_of_the_worked_set(worked):
    flow = worked.figures()["flow"]
    assert [one["count"] for one in flow["funnel"]] == [4, 4, 4, 3, 3, 2, 2]
    assert [one["pct"] for one in flow["funnel"]] == [100, 100, 100, 75, 75, 50, 50]
    assert [one["level"] for one in flow["funnel"]] == [
        "traj", "dispatch", "run", "rollout", "reward", "sampled", "trained"
    ]  # fmt: skip
    assert [one["count"] for one in flow["columns"]] == [4, 4, 3, 2, 2]
    assert [one["count"] for one in flow["exits"]] == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dispatch_wait", {"n": 4, "p50": 0.11, "max": 0.12}),
        ("start_wait", {"n": 4, "p50": 0.30}),
        ("env_prepare", {"n": 4, "p50": 0.35, "max": 0.40}),
        ("generation", {"n": 3, "avg": 6.0, "p50": 6.0, "p90": 7.6, "p99": 7.96, "max": 8.0}),
        ("agent_finish", {"n": 3, "p50": 0.1, "max": 0.2}),
        ("reward", {"n": 3, "p50": 0.40, "p90": 0.48}),
        ("buffer_wait", {"n": 2, "p50": 2.90, "p90": 3.78, "p99": 3.978, "max": 4.0}),
        ("logprob", {"n": 2, "p50": 0.5}),
        ("ref_logprob", {"n": 2, "p50": 0.4}),
        ("advantage", {"n": 2, "p50": 0.1}),
        ("update", {"n": 2, "p50": 4.0}),
        ("e2e", {"n": 2, "p50": 14.0}),
    ],
)
def test_transitions_of_the_worked_set(worked, name, expected):
    found = worked.figures()["flow"]["transitions"][name]
    assert {key: found[key] for key in expected} == pytest.approx(expected)


def test_slowest_of_the_worked_set(worked):
    transitions = worked.figures()["flow"]["transitions"]
    assert transitions["generation"]["slowest"] == ["u2/0", "u1/1", "u1/0"]
    assert transitions["generation"]["slowest_s"] == [8.0, 6.0, 4.0]


def test_stuck_list_of_the_worked_set(worked):
    flow = worked.figures(now_ms=T0 + 20_000)["flow"]
    assert flow["stuck"] == [
        {"id": "u2/1", "milestone": "generating", "idle_s": 17, "turns": 1},
        {"id": "u2/0", "milestone": "scored-awaiting-sampling", "idle_s": 10, "turns": 1},
    ]
    assert flow["milestones"]["generating"] == 1


def test_an_old_run_is_idle_since_its_last_event_and_not_since_then(worked):
    stuck = worked.figures()["flow"]["stuck"]
    assert [one["idle_s"] for one in stuck] == [11, 5]


def test_step_waste_and_staleness_of_the_worked_set(worked):
    flow = worked.figures()["flow"]
    (step,) = flow["steps"]
    assert (step["step"], step["trajs"], step["samples"]) == (1, 2, 1)
    assert (step["prod_start_ms"] - T0, step["prod_end_ms"] - T0) == (5000, 7200)
    assert (step["rollout_p50"], step["buffer_wait_p50"], step["train_sec"]) == (5.75, 2.9, 5.0)
    assert step["rollout_sec"] is None
    assert flow["useful_sec"] == 11.5
    assert flow["wasted_sec"] is None
    assert flow["staleness"]["kind"] == "version"
    assert flow["staleness"]["lag"] == {"0": 2}
    assert flow["staleness"]["span"] == {"1": 2}


def test_the_documents_rows_leave_unknown_durations_null(trace):
    trace.write(
        h_pid1=row("p/sample", 29000, "DATA_PREPROCESS", "uid_generated")
        + row("p/0", 30700, "ROLLOUT_REWARD", "reward_score_computed_score=1.0")
        + row("p/0", 60000, "TRAIN_UPDATE", "actor_parameters_updated", "COMPLETE")
        + row("*/sample", 61000, "SYNC_PARAMS", "weights_synced_global_step=1")
    )
    flow = trace.figures()["flow"]
    assert flow["totals"]["sampled"] == 0
    assert flow["funnel"][5] == {"level": "sampled", "count": 1, "pct": 100.0}
    assert flow["transitions"]["e2e"]["max"] == 31.0
    for name in ("reward", "buffer_wait", "update"):
        found = flow["transitions"][name]
        assert found["n"] == 0
        assert found["p50"] is None
        assert found["max"] is None
        assert found["slowest"] == []


def test_failed_and_discarded_leave_the_flow_where_they_were(trace):
    trace.write(
        h_pid1=row("p/0", 0, "ROLLOUT_START", "agent_started")
        + row("p/0", 10, "ROLLOUT_TOOL", "x", "FAILED")
        + row("p/1", 0, "ROLLOUT_FINISH", "rollout_finished")
        + row("p/1", 3000, "BUFFER_SAMPLE", "dropping_started", "DISCARDED")
        + row("p/2", 0, "ROLLOUT_FINISH", "rollout_finished")
    )
    flow = trace.figures()["flow"]
    assert flow["totals"]["in_flight"] == 1
    exits = {one["exit"]: (one["count"], one["failed"], one["discarded"]) for one in flow["exits"]}
    assert exits["generating"] == (1, 1, 0)
    assert exits["awaiting-sampling"] == (2, 0, 1)
    counts = [one["count"] for one in flow["columns"]]
    assert sum(one["count"] for one in flow["exits"]) + counts[-1] == counts[0] == 3
    assert flow["loss_pct"] == 100.0
    assert flow["wasted_sec"] == 0.01


def test_generation_start_and_end_may_be_told_by_components_only(trace):
    content = "stage=ROLLOUT_GENERATE|global_step=1|detail=turn=0"
    there = f"from=AgentLoopWorker|to=RolloutReplica|{content}"
    back = f"from=RolloutReplica|to=AgentLoopWorker|{content}"
    trace.write(
        h_pid1=f"j,sample,p/0,RUNNING,{T0},{there}\nj,sample,p/0,RUNNING,{T0 + 2500},{back}\n"
        + row("p/0", 3000, "ROLLOUT_FINISH", "rollout_finished")
    )
    found = trace.figures()["flow"]["transitions"]
    assert (found["generation"]["n"], found["generation"]["max"]) == (1, 2.5)


def test_group_size_from_trajectories_gives_what_was_not_dispatched(trace):
    trace.write(h_pid1=row("p/sample", 0, "DATA_PREPROCESS", "uid_generated"))
    unknown = trace.figures()["flow"]["generated_not_dispatched"]
    assert unknown == {"count": 1, "estimated": True}
    trace.write(
        "trajectory",
        t='{"prompt_uid":"p","sample_index":0,"raw_message":"{\\"n_samples\\":4}"}\n',
    )
    figures = trace.figures()
    assert figures["flow"]["generated_not_dispatched"] == {"count": 4, "estimated": False}
    assert figures["flow"]["totals"]["uids"] == 1
    assert figures["trajectories"] == {"count": 1, "with_flow": 0}


def test_staleness_without_syncs_is_the_step_difference(trace):
    trace.write(
        h_pid1=row("p/0", 0, "ROLLOUT_START", "agent_started", step=3)
        + row("p/0", 9, "TRAIN_UPDATE", "actor_parameters_updated", "COMPLETE", step=5)
    )
    staleness = trace.figures()["flow"]["staleness"]
    assert (staleness["kind"], staleness["lag"]) == ("step", {"2": 1})


def test_rollout_idle_is_the_sum_of_all_gaps(trace):
    spans = {"p/0": (0, 1000), "p/1": (500, 2000), "p/2": (5000, 6000), "p/3": (7500, 8000)}
    trace.write(
        h_pid1="".join(
            row(name, start, "ROLLOUT_START", "agent_started")
            + row(name, end, "ROLLOUT_FINISH", "rollout_finished")
            for name, (start, end) in spans.items()
        )
    )
    assert trace.figures()["flow"]["rollout_idle_sec"] == 4.5


def test_an_unknown_stage_shows_with_its_place_and_length(trace):
    trace.write(
        h_pid1=row("p/0", 0, "ROLLOUT_START", "agent_started")
        + row("p/0", 2000, "ENV_RESET", "a")
        + row("p/0", 5000, "ENV_RESET", "b")
    )
    figures = trace.figures()
    found = [one for one in figures["flow"]["stages"] if not one["known"]]
    assert found == [
        {
            "stage": "ENV_RESET",
            "rows": 2,
            "known": False,
            "offset_p50_s": 2.0,
            "length_p50_s": 3.0,
        }
    ]
    assert figures["health"]["unknown_stage"] == 2


def test_the_newest_job_is_shown_and_another_can_be_chosen(trace):
    trace.write(
        h_pid1=row("p/0", 0, "ROLLOUT_START", "x", job="old")
        + row("p/0", 5, "ROLLOUT_START", "x", job="new")
    )
    reader = trace.read()
    assert reader.snapshot().job == "new"
    assert reader.snapshot().flow.totals["trajs"] == 1
    reader.selected_job = "old"
    assert reader.snapshot().job == "old"


def test_percentiles_are_numpys_on_random_durations(trace):
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 100_000, 300)
    trace.write(
        h_pid1="".join(
            row(f"p{i}/0", 0, "ROLLOUT_DISPATCH", "d")
            + row(f"p{i}/0", int(length), "ROLLOUT_START", "agent_started")
            for i, length in enumerate(lengths)
        )
    )
    found = trace.figures()["flow"]["transitions"]["start_wait"]
    expected = np.percentile(lengths / 1000.0, (50, 90, 99))
    assert [found["p50"], found["p90"], found["p99"]] == pytest.approx(expected.tolist())
    names = sorted(
        range(300), key=lambda i: (-lengths[i], f"p{i}/0")
    )[:5]  # fmt: skip
    assert found["slowest"] == [f"p{i}/0" for i in names]
