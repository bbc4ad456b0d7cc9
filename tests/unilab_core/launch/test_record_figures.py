"""Figures of a run whose learner left no result, from what its ring still holds."""

import pytest

from unilab_core.launch.record_figures import figures_from_records


def iteration(i, wall_ms=10.0, steps=64, **fields):
    return {
        "kind": "iteration", "iteration": i, "env_steps": i * steps, "wall_ms": wall_ms,
        "steps_per_s": steps / wall_ms * 1e3, "reward_mean": float(i), "reward_best": 250.0,
        "learner": {"Perf/learner_inference_ms": 1.5}, **fields,
    }  # fmt: skip


def test_without_an_iteration_nothing_is_known():
    assert figures_from_records([]) == {}
    assert figures_from_records([{"kind": "run"}, {"kind": "event", "text": "x"}]) == {}


def test_the_newest_iteration_tells_where_the_run_ended():
    figures = figures_from_records([iteration(1), iteration(2), {"kind": "event"}])
    assert figures["completed_iterations"] == 2
    assert figures["total_env_steps"] == 128
    assert figures["final_mean_reward"] == 2.0
    assert figures["best_mean_reward"] == 250.0
    assert figures["final_inference_ms"] == 1.5
    assert figures["final_inference_h2d_ms"] is None


def test_the_tail_is_all_steps_over_all_seconds_of_the_last_hundred():
    old = [iteration(i, wall_ms=1.0) for i in range(1, 51)]
    # Of the last hundred, ninety-nine take 10 ms and one a whole second.
    new = [iteration(i) for i in range(51, 150)] + [iteration(150, wall_ms=1000.0)]
    figures = figures_from_records(old + new)
    assert figures["tail_iteration_count"] == 100
    assert figures["tail_env_steps_per_sec"] == pytest.approx(100 * 64 / 1.99)


def test_beats_of_the_warm_up_do_not_count_as_iterations_of_the_tail():
    warm_up = {"kind": "iteration", "iteration": 0, "env_steps": 32, "wall_ms": None,
               "steps_per_s": None, "learner": {}}  # fmt: skip
    figures = figures_from_records([warm_up])
    assert figures["tail_iteration_count"] == 0
    assert figures["tail_env_steps_per_sec"] is None
    assert figures["total_env_steps"] == 32
