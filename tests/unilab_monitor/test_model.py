"""The fold, with figures computed by hand. No Textual."""

import pytest
from synthetic_job import MS, SECOND, collector, fold, iteration, run_info

from unilab_core.telemetry.records import Note
from unilab_monitor.model import Model
from unilab_monitor.view import EndView, JobFacts, ProcessView

T = 100 * SECOND


def process(**changes):
    facts = {
        "role": "learner",
        "rank": 0,
        "pid": 3,
        "phase": "training/learner_update",
        "awaits": None,
        "age_s": 0.1,
    }
    return ProcessView(**{**facts, **changes})


def test_figures_are_means_over_the_samples_of_the_last_two_seconds():
    view = fold(
        learner=[
            run_info(),
            iteration(T - 3 * SECOND, 1, reward_mean=100.0),  # older than the window
            iteration(T - 1 * SECOND, 2, reward_mean=1.0, steps_per_s=1000.0),
            iteration(T, 3, reward_mean=4.0, steps_per_s=2000.0),
        ],
        now_ns=T,
    )
    assert view.window_samples == 2
    assert view.rewards.mean == 2.5
    assert view.steps_per_s == 1500.0
    assert view.iteration == 3
    assert view.env_steps == 192


def test_a_key_is_averaged_over_the_samples_that_have_it():
    view = fold(
        learner=[
            iteration(T - SECOND, 1, metrics={"Loss/critic": 2.0}),
            iteration(T, 2, metrics={"Loss/critic": 4.0, "Loss/actor": 7.0}),
        ],
        now_ns=T,
    )
    assert view.metrics == {"Loss/critic": 3.0, "Loss/actor": 7.0}


def test_at_most_512_samples_are_averaged():
    records = [iteration(T + k, k, reward_mean=float(k)) for k in range(600)]
    view = fold(learner=records, now_ns=T + 600)
    assert view.window_samples == 512
    assert view.rewards.mean == pytest.approx((88 + 599) / 2)


def test_learner_phases_other_and_wall_add_up():
    view = fold(learner=[run_info(), iteration(T, 1)], now_ns=T)
    learner = view.learner
    assert learner.accounted_ms == pytest.approx(20.0)
    assert learner.wall_ms == pytest.approx(20.4)
    assert learner.other_ms == pytest.approx(0.4)
    assert learner.alarm is None
    assert learner.values["Perf/iteration_time"] == pytest.approx(0.0204)
    assert learner.values["Perf/learning_time"] == pytest.approx(0.018)
    assert "Perf/learner_inference_forward_ms" in learner.values  # nested, not accounted


def test_phases_that_claim_more_than_the_wall_raise_the_alarm_and_other_is_zero():
    view = fold(learner=[run_info(), iteration(T, 1, wall_ms=19.0)], now_ns=T)
    assert view.learner.other_ms == 0.0
    assert "105.3 %" in view.learner.alarm  # 20 / 19


def test_without_a_measured_wall_the_accounted_time_stands_for_it():
    view = fold(learner=[run_info(), iteration(T, 1, wall_ms=None)], now_ns=T)
    assert view.learner.wall_ms == pytest.approx(20.0)
    assert view.learner.other_ms == 0.0
    assert "Perf/iteration_time" not in view.learner.values


def test_the_collector_cycle_is_the_sum_of_its_six_phases():
    view = fold(learner=[run_info()], collector=[collector(T, 1)], now_ns=T)
    assert view.collector.cycle_ms == pytest.approx(20.0)
    assert view.collector.wall_ms == pytest.approx(20.3)
    assert view.collector.other_ms == pytest.approx(0.3)


def test_with_a_phase_missing_there_is_no_cycle_and_no_other():
    timing = dict(collector(T, 1).timing)
    del timing["Perf/collector_metrics_publish_ms"]
    view = fold(learner=[run_info()], collector=[collector(T, 1, timing=timing)], now_ns=T)
    assert view.collector.cycle_ms is None
    assert view.collector.other_ms is None
    assert view.collector.wall_ms == pytest.approx(20.3)


def test_each_source_has_its_own_age_and_stall():
    learner = [iteration(T + k * 20 * MS, k) for k in range(100)]
    collecting = [collector(T + k * 20 * MS, k) for k in range(300)]
    view = fold(learner=[run_info(), *learner], collector=collecting, now_ns=T + 6 * SECOND)
    assert view.state == "stalled"
    assert view.learner.stalled
    assert view.learner.age_s == pytest.approx(6.0 - 1.98)
    assert not view.collector.stalled
    assert view.collector.age_s == pytest.approx(0.02)


def test_a_stalled_source_keeps_its_last_figures():
    model = Model()
    fold(model=model, learner=[run_info(), iteration(T, 7, reward_mean=3.0)], now_ns=T)
    view = fold(model=model, now_ns=T + 60 * SECOND)
    assert view.rewards.mean == 3.0
    assert view.window_samples == 1
    assert view.learner.age_s == 60.0


def test_elapsed_starts_at_the_first_trainable_moment():
    warm = fold(
        learner=[run_info(trainable_ns=None), iteration(T, 0, status="Warm-up", learner={})],
        now_ns=T,
    )
    assert warm.warm_up
    assert warm.elapsed_s is None
    assert warm.eta_s is None
    view = fold(learner=[run_info(trainable_ns=T - 61 * SECOND), iteration(T, 412)], now_ns=T)
    assert not view.warm_up
    assert view.elapsed_s == 61.0
    assert view.eta_s == pytest.approx(61.0 / 412 * (5000 - 412))


def test_a_resumed_run_estimates_from_its_own_iterations():
    view = fold(
        learner=[
            run_info(trainable_ns=T - 10 * SECOND, first_iteration=4000),
            iteration(T, 4100),
        ],
        now_ns=T,
    )
    assert view.eta_s == pytest.approx(90.0)  # 900 iterations at 0.1 s


def test_reward_trend_and_peak_come_from_the_reports():
    flat = fold(learner=[iteration(T + k, k, reward_mean=1.0) for k in range(9)], now_ns=T)
    assert flat.rewards.trend is None
    rising = [iteration(T + k, k, reward_mean=1.0 if k < 10 else 1.1) for k in range(20)]
    assert fold(learner=rising, now_ns=T).rewards.trend == "up"
    falling = [iteration(T + k, k, reward_mean=1.0 if k < 10 else 0.9) for k in range(20)]
    view = fold(learner=falling, now_ns=T)
    assert view.rewards.trend == "down"
    assert view.rewards.peak == 1.0


def test_reward_terms_are_sorted_and_terminations_are_totals():
    view = fold(
        learner=[iteration(T, 1, rewards={"reward/b": -0.5, "reward/a": 0.25})],
        collector=[
            collector(T - SECOND, 1, terminations_total={"Episode_Termination/tilt": 3.0}),
            collector(T, 2, terminations_total={"Episode_Termination/tilt": 5.0}),
        ],
        now_ns=T,
    )
    assert list(view.rewards.terms.items()) == [("a", 0.25), ("b", -0.5)]
    assert view.rewards.terminations == {"tilt": 5.0}


def test_what_is_shown_elsewhere_is_not_among_the_metrics():
    metrics = {"Loss/critic": 1.0, "Train/mean_reward": 2.0, "Train/target_q_max": 3.0}
    view = fold(learner=[iteration(T, 1, metrics=metrics)], now_ns=T)
    assert view.metrics == {"Loss/critic": 1.0, "Train/target_q_max": 3.0}


def test_the_learner_says_more_about_a_run_than_the_registry():
    facts = JobFacts(job="go2-1", algo="sac", task="go2_joystick_flat", sim="mujoco", run_dir="/r")
    assert fold(facts=facts, now_ns=T).facts == facts
    view = fold(facts=facts, learner=[run_info(device="cuda:0", num_gpus=1)], now_ns=T)
    assert view.facts.num_gpus == 1
    assert view.facts.max_iterations == 5000
    assert view.facts.job == "go2-1"


def test_a_waiting_learner_gives_the_bottleneck_as_a_finding():
    view = fold(learner=[run_info(), iteration(T, 1)], collector=[collector(T, 1)], now_ns=T)
    assert [one.finding.split(" ")[0:3] for one in view.findings] == [["Learner", "Action", "Wait"]]


@pytest.mark.parametrize(
    "record",
    [
        None,
        7,
        [],
        {},
        {"kind": "nonsense"},
        {"kind": ["unhashable"]},
        {"kind": "iteration"},
        {"kind": "iteration", "t_ns": "soon", "iteration": 1},
        {"kind": "collector", "timing": {1: 2}},
        {"kind": "run", "job": 5},
        {"kind": "event", "t_ns": 1, "text": "x", "level": "loud"},
    ],
)
def test_a_record_that_is_none_of_ours_is_counted_and_changes_nothing(record):
    model = Model()
    before = fold(model=model, learner=[run_info(), iteration(T, 3)], now_ns=T)
    after = fold(model=model, learner=[record], collector=[record], now_ns=T)
    assert after.invalid == 2
    assert after.iteration == before.iteration
    assert after.metrics == before.metrics


def test_a_thousand_names_from_a_foreign_environment_are_refused_as_one_record():
    rewards = {f"reward/{k}": 1.0 for k in range(1000)}
    view = fold(learner=[iteration(T, 1, rewards=rewards)], now_ns=T)
    assert view.invalid == 1
    assert not view.rewards.terms


def test_nan_is_information_and_stays_in_the_figures():
    view = fold(learner=[iteration(T, 1, metrics={"Loss/critic": float("nan")})], now_ns=T)
    assert view.metrics["Loss/critic"] != view.metrics["Loss/critic"]


def test_the_state_is_starting_until_attachable_and_ended_with_its_reason():
    assert fold(attached=False, now_ns=T).state == "starting"
    assert fold(now_ns=T).state == "running"
    ended = fold(now_ns=T, end=EndView(reason="completed", exit_code=0))
    assert ended.state == "ended"
    assert ended.end.reason == "completed"


def test_an_ended_job_is_not_called_stalled():
    view = fold(
        learner=[run_info(), iteration(T, 1)],
        now_ns=T + 60 * SECOND,
        end=EndView(reason="completed"),
    )
    assert view.state == "ended"
    assert not view.learner.stalled
    assert view.eta_s is None


def test_a_silent_process_stalls_the_job_only_while_it_trains():
    assert fold(processes=(process(age_s=11.0),), now_ns=T).state == "stalled"
    starting = process(age_s=11.0, phase="startup/learner_prepare")
    assert fold(processes=(starting,), now_ns=T).state == "running"
    assert fold(processes=(process(age_s=11.0, state="ended"),), now_ns=T).state == "running"


def test_events_carry_their_age():
    view = fold(learner=[Note(t_ns=T, text="checkpoint saved")], now_ns=T + 3 * SECOND)
    assert [(event.age_s, event.text) for event in view.events] == [(3.0, "checkpoint saved")]


def test_the_same_batches_fold_into_the_same_views():
    batches = [
        {"learner": [run_info(), iteration(T, 1)], "collector": [collector(T, 1)], "now_ns": T},
        {"learner": [iteration(T + SECOND, 2)], "now_ns": T + SECOND},
    ]
    one, other = Model(), Model()
    assert [fold(model=one, **b) for b in batches] == [fold(model=other, **b) for b in batches]
