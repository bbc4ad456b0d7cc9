"""Figures from a timeline: hand-made slices, hand-computed values."""

import pytest

from unilab_core.telemetry.timeline.figures import cycle_figures

MS = 1_000_000
WAIT, LEARN = "Perf/learner_collector_wait_ms", "Perf/learning_time"
ACTION_WAIT, STEP = "Perf/collector_learner_action_wait_ms", "Perf/collector_env_step_ms"
BACKEND, INFER = "Perf/collector_env_step_backend_ms", "Perf/collector_mlp_infer_ms"


def figures(recorder):
    recorder.close()
    return list(cycle_figures([recorder.path]))


def test_an_iteration_has_its_wall_its_phases_and_no_warm_up(make_recorder):
    recorder = make_recorder()
    main, walls = recorder.thread_lane("learner"), recorder.lane("Iter Wall")
    main.slice("Collector Wait", 0, 50 * MS, tag=WAIT)  # warm-up
    for k in (1, 2):
        start = k * 100 * MS
        main.slice("Collector Wait", start, start + 10 * MS, tag=WAIT)
        main.slice("Learning", start + 10 * MS, start + 90 * MS, tag=LEARN)
        walls.slice(
            "Iter Wall", start, start + 100 * MS, tag="Perf/iteration_time", note=("iteration", k)
        )
    first, second = figures(recorder)
    assert (first.kind, first.number, first.wall_ns) == ("iteration", 1, 100 * MS)
    assert first.values == {WAIT: 10.0, LEARN: 0.08, "Perf/iteration_time": 0.1}
    assert first.exclusive_ns == 90 * MS
    assert second.number == 2


def test_ppo_rollouts_leave_out_the_first_wait(make_recorder):
    recorder = make_recorder("collector", 1)
    main, cycles = recorder.thread_lane("collector"), recorder.lane("Cycle Wall")
    rollouts = recorder.lane("Rollout Wall")
    for tick in range(4):
        start = tick * 10 * MS
        main.slice("Learner Action Wait", start, start + (5 + tick) * MS, tag=ACTION_WAIT)
        part = [("Backend Step", BACKEND, start + 9 * MS, start + 10 * MS)]
        main.slice("Env Step", start + 9 * MS, start + 10 * MS, tag=STEP, parts=part)
        cycles.slice("Cycle Wall", start, start + 10 * MS, note=("tick", tick))
        if tick % 2 == 1:
            rollouts.slice("Rollout Wall", start, start + 10 * MS, note=("rollout", tick // 2))
    found = figures(recorder)
    assert [f.number for f in found if f.kind == "tick"] == [0, 1, 2, 3]
    assert found[0].values == {ACTION_WAIT: 5.0, BACKEND: 1.0, STEP: 1.0}
    assert found[0].exclusive_ns == 6 * MS  # the part is inside the step
    walls = [f.values for f in found if f.kind == "rollout"]
    assert walls == [{"Perf/collection_time": 0.015}, {"Perf/collection_time": 0.013}]


def test_appo_averages_are_folded_step_by_step(make_recorder):
    recorder = make_recorder("collector", 1)
    main, rollouts = recorder.thread_lane("collector"), recorder.lane("Rollout Wall")
    for k, (infer, step) in enumerate([(1, 4), (2, 6)]):
        start = k * 20 * MS
        main.slice("MLP Infer", start, start + infer * MS, tag=INFER)
        main.slice("Env Step", start + infer * MS, start + (infer + step) * MS, tag=STEP)
    rollouts.slice("Rollout Wall", 0, 40 * MS, tag="Perf/collection_time", note=("rollout", 0))
    (rollout,) = figures(recorder)
    assert rollout.values == pytest.approx({INFER: 1.1, STEP: 4.2, "Perf/collection_time": 0.04})
