"""The figures as one JSON-ready object. Fields may be added, never renamed; absent is None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unilab_core.telemetry.rl_trace.flow_figures import Distribution, FlowFigures
from unilab_core.telemetry.rl_trace.progress_figures import ProgressFigures, StageRun
from unilab_core.telemetry.rl_trace.snapshot import Snapshot
from unilab_core.telemetry.rl_trace.step_figures import StepFigures


def document(snapshot: Snapshot) -> dict[str, Any]:
    """The machine-readable object of a trace directory."""
    flow = _flow(snapshot.flow)
    flow["steps"] = [_step(row) for row in snapshot.steps]
    flow["trainer_idle_pct"] = _rounded(snapshot.trainer_idle_pct)
    health: dict[str, Any] = snapshot.damage.as_dict()
    health["pending_bytes"] = snapshot.pending_bytes
    return {
        "progress": _progress(snapshot.progress),
        "flow": flow,
        "trajectories": {
            "count": snapshot.num_trajectories,
            "with_flow": snapshot.num_with_flow,
        },
        "health": health,
        "job_id": snapshot.job,
        "jobs": list(snapshot.jobs),
        "state": "running" if snapshot.running else "ended",
        "complete": snapshot.complete,
        "rows": snapshot.num_rows,
        "missing_folders": list(snapshot.missing_folders),
    }


def _progress(figures: ProgressFigures) -> dict[str, Any]:
    return {
        "mode": figures.mode,
        "current_step": figures.current_step,
        "total_steps": figures.total_steps,
        "elapsed_s": _rounded(figures.elapsed_s),
        "mean_step_s": _rounded(figures.mean_step_s),
        "eta_s": _rounded(figures.eta_s),
        "session": figures.session,
        "stages": [_stage(stage) for stage in figures.stages],
        "stage_step": figures.stage_step,
        "completed_steps": figures.completed_steps,
        "pct": _rounded(figures.pct),
        "pace_s": _rounded(figures.pace_s),
        "eta_refined_s": _rounded(figures.eta_refined_s),
        "trajectories_completed": figures.num_tasks,
        "trajectory_statuses": dict(figures.task_statuses),
        "trajectories_per_min": _rounded(figures.tasks_per_min),
        "tokens_per_s": _rounded(figures.throughput),
        "trace_every": figures.trace_every,
        "history": [
            {
                "step": run.step,
                "start_ms": run.start_ms,
                "time_source": run.time_source,
                "duration_s": _rounded(run.duration_s),
                "stages": [_stage(stage) for stage in run.stages if stage.occurrences],
            }
            for run in figures.history
        ],
    }


def _stage(stage: StageRun) -> dict[str, Any]:
    return {
        "name": stage.name,
        "state": stage.state,
        "duration_s": _rounded(stage.duration_s),
        "occurrences": stage.occurrences,
        "time_source": stage.time_source,
    }


def _flow(figures: FlowFigures) -> dict[str, Any]:
    return {
        "totals": dict(figures.totals),
        "funnel": [
            {"level": one.level, "count": one.count, "pct": _rounded(one.pct)}
            for one in figures.funnel
        ],
        "columns": [{"column": name, "count": count} for name, count in figures.columns],
        "exits": [
            {
                "exit": one.name,
                "count": one.count,
                "failed": one.failed,
                "discarded": one.discarded,
            }
            for one in figures.exits
        ],
        "transitions": {name: _distribution(one) for name, one in figures.transitions.items()},
        "milestones": dict(figures.milestones),
        "generated_not_dispatched": {
            "count": figures.undispatched,
            "estimated": figures.undispatched_estimated,
        },
        "stuck": [
            {"id": one.id, "milestone": one.milestone, "idle_s": one.idle_s, "turns": one.turns}
            for one in figures.stuck
        ],
        "stages": [
            {
                "stage": one.stage,
                "rows": one.rows,
                "known": one.known,
                "offset_p50_s": one.offset_p50_s,
                "length_p50_s": one.length_p50_s,
            }
            for one in figures.stages
        ],
        "turns": _numbers(figures.turns),
        "useful_sec": _rounded(figures.useful_s),
        "wasted_sec": _rounded(figures.wasted_s),
        "waste_pct": _rounded(figures.waste_pct),
        "loss_pct": _rounded(figures.loss_pct),
        "staleness": {
            "kind": figures.staleness.kind,
            "lag": _histogram(figures.staleness.lag),
            "lag_worst": _histogram(figures.staleness.lag_worst),
            "span": _histogram(figures.staleness.span),
        },
        "groups_complete": figures.groups_complete,
        "rollout_idle_sec": _rounded(figures.rollout_idle_s),
    }


def _distribution(one: Distribution) -> dict[str, Any]:
    return _numbers(one) | {
        "slowest": [name for name, _ in one.slowest],
        "slowest_s": [seconds for _, seconds in one.slowest],
    }


def _numbers(one: Distribution) -> dict[str, Any]:
    return {
        "n": one.n,
        "avg": one.avg,
        "p50": one.p50,
        "p90": one.p90,
        "p99": one.p99,
        "max": one.max,
    }


def _step(row: StepFigures) -> dict[str, Any]:
    return {
        "step": row.step,
        "trajs": row.trajs,
        "samples": row.samples,
        "prod_start_ms": row.prod_start_ms,
        "prod_end_ms": row.prod_end_ms,
        "rollout_p50": row.rollout_p50_s,
        "buffer_wait_p50": row.buffer_wait_p50_s,
        "rollout_sec": _rounded(row.rollout_s),
        "gap_sec": _rounded(row.gap_s),
        "train_sec": _rounded(row.train_s),
        "idle_sec": _rounded(row.idle_s),
    }


def _histogram(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(key): count for key, count in sorted(counts.items())}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
