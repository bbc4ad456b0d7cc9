"""Figures of a run from its learner ring, for the summary of a run whose learner left no result.

The ring holds the newest few thousand iterations, far more than the tail window; totals and the
best reward are carried by every record, so a ring that has wrapped loses nothing that is needed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from unilab_core.telemetry.window import TailThroughput


def figures_from_records(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summary fields by the newest iteration, and the throughput of the last 100."""
    iterations = [r for r in records if r.get("kind") == "iteration"]
    if not iterations:
        return {}
    last = iterations[-1]
    learner = last.get("learner") or {}
    inference = "Perf/learner_inference"
    return {
        "completed_iterations": last.get("iteration"),
        "total_env_steps": last.get("env_steps"),
        "final_mean_reward": last.get("reward_mean"),
        "best_mean_reward": last.get("reward_best"),
        "mean_episode_length": last.get("episode_length"),
        "final_env_steps_per_sec": last.get("steps_per_s"),
        "final_learner_replay_rows_per_sec": last.get("rows_per_s"),
        "final_cycle_wall_ms": last.get("wall_ms"),
        "final_inference_ms": learner.get(f"{inference}_ms"),
        "final_inference_h2d_ms": learner.get(f"{inference}_h2d_ms"),
        "final_inference_forward_ms": learner.get(f"{inference}_forward_ms"),
        "final_inference_d2h_ms": learner.get(f"{inference}_d2h_ms"),
        **_tail(iterations),
    }


def _tail(iterations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    tail = TailThroughput()
    for record in iterations:
        steps_per_s, wall_ms = record.get("steps_per_s"), record.get("wall_ms")
        if _is_positive(steps_per_s) and _is_positive(wall_ms):
            # The record has the rate: steps = rate x wall, as it was computed from them.
            tail.add(round(steps_per_s * wall_ms / 1e3), wall_ms / 1e3)
    return {
        "tail_env_steps_per_sec": tail.steps_per_s,
        "tail_iteration_count": tail.count,
        "tail_window_iterations": tail.window_iterations,
    }


def _is_positive(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and value > 0
