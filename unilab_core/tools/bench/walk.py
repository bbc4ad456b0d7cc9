"""``unilab-bench walk``: seconds from process start until a policy passes the evaluation.

Training exports its policy on a clock; nothing is evaluated while it runs. Afterwards every
exported policy is judged in order. The time to success is that of the first of two passing policies
in a row, counted from the start of the launcher's process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from unilab_core.config.env import EnvConfig
from unilab_core.nets.policy_file import load_policy
from unilab_core.run.run_dir import RunPaths
from unilab_core.run.threads import available_cores
from unilab_core.tools.bench.launch import launch_run, read_summary
from unilab_core.tools.bench.report import BenchReport
from unilab_core.tools.evaluate import evaluate

PASSES_IN_A_ROW = 2
START_AND_SAVE_S = 120.0
"""Allowance above the training time, for imports and the last checkpoint."""


def run(
    *,
    algo: str,
    task: str,
    seeds: Sequence[int],
    train_s: float,
    interval_s: float,
    overrides: Sequence[str] = (),
) -> BenchReport:
    """Train once per seed, judge the policies, report one row per seed.

    Args:
        algo: algorithm, as on the command line.
        task: task name.
        seeds: one training each.
        train_s: training time per seed, in s.
        interval_s: time between two exported policies, in s.
        overrides: further KEY=VALUE settings.
    """
    rows = [_one_seed(algo, task, seed, train_s, interval_s, overrides) for seed in seeds]
    return BenchReport(
        bench="walk",
        settings={
            "algo": algo,
            "task": task,
            "train_s": train_s,
            "interval_s": interval_s,
            "overrides": list(overrides),
        },
        rows=rows,
        ok=all(row["time_to_success_s"] is not None for row in rows),
    )


def _one_seed(
    algo: str,
    task: str,
    seed: int,
    train_s: float,
    interval_s: float,
    overrides: Sequence[str],
) -> dict:
    settings = [
        f"algo.seed={seed}",
        "algo.max_iterations=1000000000",
        f"training.max_wall_time_s={train_s}",
        f"training.policy_interval_s={interval_s}",
        *overrides,
    ]
    with tempfile.TemporaryDirectory(prefix="unilab-bench-") as folder:
        limit_s = train_s + START_AND_SAVE_S
        run = launch_run(algo, task, Path(folder), settings, timeout_s=limit_s)
        curve = judge_policies(run)
        env_steps = read_summary(run)["total_env_steps"]
    passed = first_success(curve)
    best = passed if passed is not None else (curve[-1] if curve else {})
    return {
        "algo": algo,
        "seed": seed,
        "time_to_success_s": None if passed is None else passed["time_s"],
        "env_steps": env_steps if passed is None else passed["env_steps"],
        "error_vel_xy": best.get("error_vel_xy"),
        "error_vel_yaw": best.get("error_vel_yaw"),
        "fall_rate": best.get("fall_rate"),
        "reference": best.get("reference"),
        "curve": curve,
    }


def judge_policies(run: RunPaths) -> list[dict]:
    """The evaluation of every policy that was exported on the clock, oldest first.

    The one at the time of success and the last are judged under ``reference`` physics too.
    """
    paths = sorted(run.policies.glob("policy_*.pt"), key=_seconds_of)
    curve = [_judge(path, "fast") for path in paths]
    passed = first_success(curve)
    for point, path in zip(curve, paths, strict=True):
        if point is passed or (passed is None and point is curve[-1]):
            point["reference"] = _judge(path, "reference")
    return curve


def first_success(curve: Sequence[dict]) -> dict | None:
    """First point from which on ``PASSES_IN_A_ROW`` consecutive policies pass."""
    for index in range(len(curve) - PASSES_IN_A_ROW + 1):
        if all(point["success"] for point in curve[index : index + PASSES_IN_A_ROW]):
            return curve[index]
    return None


def _judge(path: Path, physics: str) -> dict:
    policy = load_policy(path)
    result = evaluate(
        policy.act,
        policy.contract["task"],
        EnvConfig.from_dict(policy.contract["env"]),
        physics,
        num_threads=available_cores(),
    )
    figures = asdict(result)
    kept = ("error_vel_xy", "error_vel_yaw", "fall_rate", "mean_reward", "success")
    return {
        "time_s": _seconds_of(path),
        "env_steps": policy.contract.get("env_steps"),
        "iteration": policy.contract["iteration"],
        **{name: figures[name] for name in kept},
    }


def _seconds_of(path: Path) -> float:
    return float(path.stem.partition("_")[2])
