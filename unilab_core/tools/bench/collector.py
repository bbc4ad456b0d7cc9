"""``unilab-bench collector``: how much of the raw physics speed the whole collector keeps.

The numerator is the real collector process (environment, managers, resets, transitions, reports)
against a process that only echoes random actions; the denominator is the time of the call of the
batch stepper alone, on the same model, the same number of substeps and threads, from the states and
with the controls of the same random policy (a second step with unchanged controls would be faster:
the solver starts from the solution). Both are measured in alternating blocks while the other stands
still; the ratio is the median of those of neighbouring blocks.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from unilab_core.envs import make_env
from unilab_core.envs.manager_based import ManagerBasedEnv
from unilab_core.tools.bench.report import BenchReport
from unilab_core.tools.bench.rig import CollectorRig, collector_config

PROMISED_RATIO = 0.80
PROMISED_FROM_ENVS = 256
TASK = "go2_joystick_flat"


def run(
    *, num_envs: Sequence[int], threads: Sequence[int], blocks: int, block_s: float
) -> BenchReport:
    """Measure every combination; one row each.

    Args:
        num_envs: environments per row.
        threads: physics threads per row.
        blocks: alternating blocks of each kind.
        block_s: length of one block, in s.
    """
    rows = [_measure(envs, count, blocks, block_s) for envs in num_envs for count in threads]
    promised = [row["ratio"] for row in rows if row["envs"] >= PROMISED_FROM_ENVS]
    return BenchReport(
        bench="collector",
        settings={"task": TASK, "blocks": blocks, "block_s": block_s, "promise": PROMISED_RATIO},
        rows=rows,
        ok=all(ratio >= PROMISED_RATIO for ratio in promised),
    )


def _measure(envs: int, threads: int, blocks: int, block_s: float) -> dict:
    raw = _RawPhysics(envs, threads)
    whole_steps_per_s, raw_steps_per_s = [], []
    with CollectorRig(task=TASK, num_envs=envs, threads=threads) as rig:
        ticks = max(8, round(block_s / _tick_s(rig)))
        for _ in range(blocks):
            raw_steps_per_s.append(envs * ticks / raw.run_ticks(ticks))
            whole_steps_per_s.append(envs * ticks / rig.run_ticks(ticks))
    raw.close()
    steps_per_s = statistics.median(whole_steps_per_s)
    raw_median = statistics.median(raw_steps_per_s)
    return {
        "envs": envs,
        "threads": threads,
        "steps_per_s": steps_per_s,
        "raw_steps_per_s": raw_median,
        "ratio": statistics.median(
            whole / bare for whole, bare in zip(whole_steps_per_s, raw_steps_per_s, strict=True)
        ),
    }


def _tick_s(rig: CollectorRig) -> float:
    rig.run_ticks(32)  # past the first resets and page faults
    return rig.run_ticks(16) / 16


class _RawPhysics:
    """The calls of the batch stepper in an environment that the same random policy moves."""

    def __init__(self, envs: int, threads: int) -> None:
        config = collector_config(TASK, envs, threads, "unused")
        env = make_env(TASK, "mujoco", config.env, num_envs=envs, seed=1, num_threads=threads)
        assert isinstance(env, ManagerBasedEnv)
        self._env = env
        shape = (16, envs, env.spec.action_width)
        self._actions = np.random.default_rng(0).uniform(-1.0, 1.0, shape).astype(np.float32)
        env.reset()
        for tick in range(48):
            env.step(self._actions[tick % 16])

    def run_ticks(self, ticks: int) -> float:
        """Seconds that the physics of ``ticks`` steps took."""
        spent_ns = 0
        for tick in range(ticks):
            self._env.step(self._actions[tick % 16])
            spent_ns += self._env.timings_ns["backend"]
        return spent_ns / 1e9

    def close(self) -> None:
        self._env.close()
