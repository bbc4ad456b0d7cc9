"""``unilab-bench train``: how much of what this machine could do PPO or APPO keeps.

    training   the real launcher, collector and learner; median Iter Wall of the iterations
    bound      physics and matrix products of one iteration alone (train_bound.py)

PPO's roles take turns, so its bound is the sum of rollout and update in one process, with the
threads of the larger role. Its products are counted as torch does them, with all threads for one
product; beside that stands the ratio to a bound in which both networks learn at once, as PPO's do
(docs/adr/0020).
APPO's roles overlap, so both run at the same time in two processes and the slower one is the bound.
Blocks of the two kinds alternate; the ratio is the median of those of neighbouring blocks. The
robots of a bound are moved by the policy of the training before it.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from unilab_core.config.compose import compose
from unilab_core.config.errors import ConfigError
from unilab_core.config.on_policy import OnPolicyConfig
from unilab_core.launch.plan import THREAD_VARIABLES
from unilab_core.run.threads import ThreadPlan, available_cores, plan_threads
from unilab_core.telemetry.event_file import read_scalars
from unilab_core.tools.bench.launch import launch_run
from unilab_core.tools.bench.report import BenchReport

PROMISED_RATIO = 0.85
SKIPPED_SHARE = 0.2
"""Share of a block's iterations at its start that do not count."""
START_S = 180.0
"""Longest start and end of a training block."""


def run(
    *, algo: str, task: str, blocks: int, block_s: float, overrides: Sequence[str] = ()
) -> BenchReport:
    """Measure; one row.

    Args:
        algo: ppo or appo.
        task: task on the mujoco backend.
        blocks: blocks of the bound; there is one training more.
        block_s: length of a block, in s.
        overrides: settings for both kinds.

    Raises:
        ConfigError: the algorithm has no rollouts.
    """
    config = compose(algo, task, "mujoco", list(overrides))
    if not isinstance(config.algo, OnPolicyConfig):
        raise ConfigError(f"--algo {algo}: expected ppo or appo")
    steps = config.algo.num_envs * config.algo.rollout_steps
    threads = plan_threads(config.training.torch_threads, available_cores(), config.algo.overlap)
    bounds = []
    with tempfile.TemporaryDirectory(prefix="unilab-bench-") as folder:
        policy = Path(folder) / "policy.pt"
        walls_s = [_training(algo, task, block_s, overrides, policy)]
        for _ in range(blocks):
            bounds.append(_bound(algo, task, block_s, overrides, threads, policy))
            walls_s.append(_training(algo, task, block_s, overrides, policy))
    return report(
        algo,
        walls_s,
        bounds,
        steps=steps,
        settings={"task": task, "blocks": blocks, "block_s": block_s, "overrides": list(overrides)},
    )


def report(
    algo: str,
    walls_s: Sequence[dict[str, float]],
    bounds: Sequence[dict[str, float]],
    *,
    steps: int,
    settings: dict[str, object],
) -> BenchReport:
    """Compare each bound with the training blocks before and after it."""
    limits_s = [iteration_bound_s(algo, bound) for bound in bounds]
    ratio = _median_ratio(limits_s, walls_s)
    at_once = [{**bound, "update_s": bound["update_at_once_s"]} for bound in bounds]
    wall_s = statistics.median(wall["wall_s"] for wall in walls_s)
    row = {
        "algo": algo,
        "steps_per_s": steps / wall_s,
        "bound_steps_per_s": steps / statistics.median(limits_s),
        "ratio": ratio,
        "ratio_at_once": _median_ratio(
            [iteration_bound_s(algo, bound) for bound in at_once], walls_s
        ),
        "collection_ms": 1e3 * statistics.median(wall["collection_s"] for wall in walls_s),
        "bound_physics_ms": 1e3 * statistics.median(bound["physics_s"] for bound in bounds),
        "bound_forward_ms": 1e3 * statistics.median(bound["forward_s"] for bound in bounds),
        "learning_ms": 1e3 * statistics.median(wall["learning_s"] for wall in walls_s),
        "bound_update_ms": 1e3 * statistics.median(bound["update_s"] for bound in bounds),
        "at_once_ms": 1e3 * statistics.median(bound["update_at_once_s"] for bound in bounds),
    }
    return BenchReport(
        bench="train",
        settings={**settings, "promise": PROMISED_RATIO},
        rows=[row],
        ok=ratio >= PROMISED_RATIO,
    )


def _median_ratio(limits_s: Sequence[float], walls_s: Sequence[dict[str, float]]) -> float:
    return statistics.median(
        2.0 * limit_s / (walls_s[index]["wall_s"] + walls_s[index + 1]["wall_s"])
        for index, limit_s in enumerate(limits_s)
    )


def iteration_bound_s(algo: str, bound: dict[str, float]) -> float:
    """PPO: one after the other; APPO: the slower of two that run at the same time."""
    parts = (bound["rollout_s"], bound["update_s"])
    return sum(parts) if algo == "ppo" else max(parts)


def _training(
    algo: str, task: str, block_s: float, overrides: Sequence[str], policy: Path
) -> dict[str, float]:
    settings = [
        "algo.max_iterations=1000000000",
        f"training.max_wall_time_s={block_s}",
        "training.logger=tensorboard",
        *overrides,
    ]
    with tempfile.TemporaryDirectory(prefix="unilab-bench-") as folder:
        run = launch_run(algo, task, Path(folder), settings, timeout_s=block_s + START_S)
        scalars = read_scalars(run.run_dir)
        shutil.copyfile(run.policy, policy)
    return {
        "wall_s": _steady(scalars, "Perf/iteration_time"),
        "collection_s": _steady(scalars, "Perf/collection_time"),
        "learning_s": _steady(scalars, "Perf/learning_time"),
    }


def _steady(scalars: dict[str, list[tuple[int, float]]], tag: str) -> float:
    values = [value for _, value in scalars[tag]]
    return statistics.median(values[int(len(values) * SKIPPED_SHARE) :])


def _bound(
    algo: str,
    task: str,
    block_s: float,
    overrides: Sequence[str],
    threads: ThreadPlan,
    policy: Path,
) -> dict[str, float]:
    cores = available_cores()
    collector, learner = threads.collector or cores, threads.learner or cores
    if algo == "ppo":
        jobs = [("both", max(collector, learner))]
    else:
        jobs = [("rollout", collector), ("update", learner)]
    workers = [
        _start(part, block_s, count, [str(policy), algo, task, *overrides]) for part, count in jobs
    ]
    found: dict[str, float] = {}
    try:
        for worker in workers:
            output, _ = worker.communicate(timeout=block_s + START_S)
            if worker.returncode != 0:
                raise RuntimeError(f"train_bound ended with exit code {worker.returncode}")
            found |= json.loads(output)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return found


def _start(
    part: str, seconds: float, threads: int, arguments: Sequence[str]
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "unilab_core.tools.bench.train_bound", part, str(seconds)]
    command += [str(threads), *arguments]
    environ = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    environ["OMP_WAIT_POLICY"] = "PASSIVE"
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environ)
