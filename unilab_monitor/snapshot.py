"""`--once --json`: a view as one JSON object. Fields may be added, never renamed.

Figures that are not known, or not finite, are null and never 0.
"""

from typing import Any

from unilab_core.run.json_files import finite
from unilab_core.telemetry.window import WINDOW_SECONDS
from unilab_monitor.view import View

AGE_DIGITS = 3


def snapshot(view: View) -> dict[str, Any]:
    """The object of reference `unilab-monitor JOB --once --json`."""
    facts, end, rewards = view.facts, view.end, view.rewards
    record = {
        "job": facts.job,
        "state": view.state,
        "reason": None if end is None else end.reason,
        "exit_code": None if end is None else end.exit_code,
        "ended_utc": None if end is None else end.ended_utc,
        "algo": facts.algo,
        "task": facts.task,
        "sim": facts.sim,
        "run_dir": facts.run_dir,
        "device": facts.device,
        "iteration": view.iteration,
        "max_iterations": facts.max_iterations,
        "env_steps": view.env_steps,
        "status": view.status,
        "warm_up": view.warm_up,
        "elapsed_s": view.elapsed_s,
        "eta_s": view.eta_s,
        "window": {"seconds": WINDOW_SECONDS, "samples": view.window_samples},
        "rates": {"steps_per_s": view.steps_per_s, "rows_per_s": view.rows_per_s},
        "episode_length": view.episode_length,
        "learner": _learner(view),
        "collector": _collector(view),
        "system": {
            "buffer": view.buffer_rows,
            "timeout_rate": view.timeout_rate,
            "envs": facts.num_envs,
            "batch_per_rank": facts.batch_per_rank,
            "cuda_mps": facts.cuda_mps,
            "ranks": facts.ranks,
            "num_gpus": facts.num_gpus,
        },
        "metrics": dict(view.metrics),
        "rewards": {
            "mean": rewards.mean,
            "peak": rewards.peak,
            "trend": rewards.trend,
            "terms": dict(rewards.terms),
        },
        "terminations": dict(rewards.terminations),
        "processes": [
            {
                "role": process.role,
                "rank": process.rank,
                "pid": process.pid,
                "phase": process.phase,
                "awaits": process.awaits,
                "age_s": _age(process.age_s),
                "state": process.state,
                "os_state": process.os_state,
            }
            for process in view.processes
        ],
        "diagnosis": [{"finding": one.finding, "check": one.check} for one in view.findings],
        "alarm": view.learner.alarm,
        "events": [
            {"age_s": _age(event.age_s), "text": event.text, "level": event.level}
            for event in view.events
        ],
        "stop_level": view.stop_level,
        "lapped": view.lapped,
        "rl_trace": None
        if view.facts.trace_root is None
        else {"root": view.facts.trace_root, "dropped": view.trace_dropped},
        "dropped": view.dropped,
        "invalid": view.invalid,
    }
    return finite(record)


def _learner(view: View) -> dict[str, Any]:
    learner = view.learner
    return {
        "age_s": _age(learner.age_s),
        "stalled": learner.stalled,
        "values": dict(learner.values),
        "wall_ms": learner.wall_ms,
        "accounted_ms": learner.accounted_ms,
        "other_ms": learner.other_ms,
    }


def _collector(view: View) -> dict[str, Any]:
    collector = view.collector
    return {
        "age_s": _age(collector.age_s),
        "stalled": collector.stalled,
        "values": dict(collector.values),
        "cycle_ms": collector.cycle_ms,
        "wall_ms": collector.wall_ms,
        "other_ms": collector.other_ms,
    }


def _age(age_s: float | None) -> float | None:
    return None if age_s is None else round(age_s, AGE_DIGITS)
