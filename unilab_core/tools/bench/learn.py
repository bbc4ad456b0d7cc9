"""``unilab-bench learn``: our algorithms against published scores of small Gymnasium tasks.

Each rung is trained to its number of environment steps, once per seed, and judged by 20
deterministic episodes; a rung holds when the mean over its seeds reaches its bar. The published
figure (Stable-Baselines3's model zoo) stands beside it, with the bar below it by less than one
standard deviation of the published runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unilab_core.config.gym_env import GymEnvConfig
from unilab_core.nets.policy_file import load_policy
from unilab_core.tools.bench.launch import launch_run, read_summary
from unilab_core.tools.bench.report import BenchReport
from unilab_core.tools.gym_evaluate import evaluate_gym

LIMIT_S = 3600.0
"""Longest single training."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Rung:
    """One task for one algorithm."""

    algo: str
    task: str
    env_steps: int
    bar: float
    """Mean return to reach."""
    published: float | None
    overrides: tuple[str, ...] = ()


SUITES = {
    "ci": (
        Rung(algo="ppo", task="gym:Pendulum-v1", env_steps=100_352, bar=-250.0, published=-172.0),
        Rung(algo="appo", task="gym:Pendulum-v1", env_steps=100_352, bar=-250.0, published=-172.0),
        Rung(algo="sac", task="gym:Pendulum-v1", env_steps=20_000, bar=-200.0, published=-157.0),
        # No published figure: SAC's bar.
        Rung(algo="flashsac", task="gym:Pendulum-v1", env_steps=29_000, bar=-200.0, published=None),
        Rung(
            algo="ppo",
            task="gym:InvertedPendulum-v5",
            env_steps=100_352,
            bar=950.0,
            published=1000.0,
        ),
        Rung(
            algo="appo",
            task="gym:InvertedPendulum-v5",
            env_steps=100_352,
            bar=950.0,
            published=1000.0,
        ),
    ),
}
"""Steps are those of the tasks' own settings in conf/<algo>/task/gym_*."""


def run(*, suite: str, seeds: Sequence[int], algos: Sequence[str] = ()) -> BenchReport:
    """Train and judge every rung.

    Args:
        suite: key of ``SUITES``.
        seeds: one training each per rung.
        algos: only these algorithms; empty means all.
    """
    rungs = [rung for rung in SUITES[suite] if not algos or rung.algo in algos]
    rows = [_one_rung(rung, seeds) for rung in rungs]
    return BenchReport(
        bench="learn",
        settings={"suite": suite, "seeds": list(seeds), "algos": list(algos)},
        rows=rows,
        ok=bool(rows) and all(row["reached"] for row in rows),
    )


def _one_rung(rung: Rung, seeds: Sequence[int]) -> dict:
    runs = [_one_seed(rung, seed) for seed in seeds]
    mean = sum(run["mean_return"] for run in runs) / len(runs)
    return {
        "algo": rung.algo,
        "task": rung.task,
        "env_steps": max(run["env_steps"] for run in runs),
        "mean_return": mean,
        "bar": rung.bar,
        "published": rung.published,
        "reached": mean >= rung.bar,
        "train_s": sum(run["train_s"] for run in runs) / len(runs),
        "runs": runs,
    }


def _one_seed(rung: Rung, seed: int) -> dict:
    with tempfile.TemporaryDirectory(prefix="unilab-bench-") as folder:
        settings = [f"algo.seed={seed}", *rung.overrides]
        run = launch_run(rung.algo, rung.task, Path(folder), settings, timeout_s=LIMIT_S)
        policy = load_policy(run.policy)
        summary = read_summary(run)
    config = GymEnvConfig.from_dict(policy.contract["env"])
    judged = evaluate_gym(policy.act, rung.task, config)
    return {
        "seed": seed,
        "mean_return": judged.mean_return,
        "std_return": judged.std_return,
        "env_steps": summary["total_env_steps"],
        "train_s": summary["training_wall_time_sec"],
    }
