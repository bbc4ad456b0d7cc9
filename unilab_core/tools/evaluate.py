"""The deterministic evaluation of a task: a pure function of policy, settings and physics.

All episodes run side by side. An episode ends at its first fall; what counts are the steps after
the first second and before the fall. Legend: E episodes (commands x starts), O observation width,
A action width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unilab_core.config.env import EnvConfig
from unilab_core.contracts import FloatArray
from unilab_core.envs import make_env
from unilab_core.envs.manager_based import ManagerBasedEnv
from unilab_core.envs.mdp.commands import uniform_velocity
from unilab_core.tasks.registry import find_task
from unilab_core.tasks.task import VelocityEvaluation

PolicyFunction = Callable[[FloatArray], FloatArray]
"""Observations [E, O] -> actions [E, A]."""


@dataclass(kw_only=True, slots=True, frozen=True)
class EvaluationResult:
    """What `unilab-eval` prints."""

    task: str
    physics: str
    episodes: int
    error_vel_xy: float | None
    """Mean over counted steps of |v_cmd,xy - v_xy|, m/s; None when no step counted."""
    error_vel_yaw: float | None
    """Mean over counted steps of |omega_cmd - omega_z|, rad/s."""
    fall_rate: float
    """Share of the episodes that fell."""
    mean_reward: float
    """Mean return of an episode, with the rewards of the run."""
    success: bool


def evaluate(
    policy: PolicyFunction,
    task: str,
    env_config: EnvConfig,
    physics: str = "fast",
    *,
    sim: str = "mujoco",
    num_threads: int = 1,
    judge: VelocityEvaluation | None = None,
) -> EvaluationResult:
    """Judge a policy; the result does not depend on `num_threads`.

    `judge` replaces the task's own evaluation in tests of this function.
    """
    judge = judge or find_task(task).evaluation
    commands = np.array(judge.commands, np.float32)
    config = judge.env_config(env_config, physics)
    env = make_env(
        task,
        sim,
        config,
        num_envs=len(commands),
        seed=judge.seed,
        num_threads=num_threads,
        spread_episodes=False,
    )
    hold_command(env, judge.command, commands)
    try:
        totals = _run(env, policy, commands, judge, config.ctrl_dt)
    finally:
        env.close()
    return _judge(task, physics, totals, judge)


def hold_command(env: ManagerBasedEnv, name: str, values: FloatArray) -> None:
    """Fix the velocity command of each environment, [E, 3]."""
    term = env.commands.terms[name]
    if not isinstance(term, uniform_velocity):
        raise ValueError(f"env.commands.{name}: got {type(term).__name__}, expected a velocity")
    term.hold(values)


@dataclass(slots=True)
class _Totals:
    """Sums over all counted steps of all episodes."""

    num_episodes: int
    num_falls: int = 0
    num_counted: int = 0
    error_xy: float = 0.0
    error_yaw: float = 0.0
    total_return: float = 0.0


def _run(
    env: ManagerBasedEnv,
    policy: PolicyFunction,
    commands: FloatArray,
    judge: VelocityEvaluation,
    step_dt_s: float,
) -> _Totals:
    totals = _Totals(num_episodes=len(commands))
    first_counted = round(judge.dropped_s / step_dt_s)
    alive = np.ones(len(commands), np.bool_)
    result = env.reset()
    for step in range(round(judge.duration_s / step_dt_s)):
        result = env.step(policy(result.obs))
        totals.total_return += float(result.reward[alive].sum(dtype=np.float64))
        alive &= ~result.terminated
        if step >= first_counted:
            # The robot state is that before the automatic reset, so a fall never hides in it.
            error_xy = np.linalg.norm(commands[:, :2] - env.robot.lin_vel_b[:, :2], axis=1)
            error_yaw = np.abs(commands[:, 2] - env.robot.ang_vel_b[:, 2])
            totals.num_counted += int(alive.sum())
            totals.error_xy += float(error_xy[alive].sum(dtype=np.float64))
            totals.error_yaw += float(error_yaw[alive].sum(dtype=np.float64))
    totals.num_falls = int((~alive).sum())
    return totals


def _judge(task: str, physics: str, totals: _Totals, judge: VelocityEvaluation) -> EvaluationResult:
    counted = totals.num_counted
    error_xy = totals.error_xy / counted if counted else None
    error_yaw = totals.error_yaw / counted if counted else None
    fall_rate = totals.num_falls / totals.num_episodes
    return EvaluationResult(
        task=task,
        physics=physics,
        episodes=totals.num_episodes,
        error_vel_xy=error_xy,
        error_vel_yaw=error_yaw,
        fall_rate=fall_rate,
        mean_reward=totals.total_return / totals.num_episodes,
        success=error_xy is not None
        and error_yaw is not None
        and error_xy < judge.max_error_vel_xy
        and error_yaw < judge.max_error_vel_yaw
        and fall_rate < judge.max_fall_rate,
    )
