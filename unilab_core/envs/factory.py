"""make_env: task + backend + settings -> environment."""

from typing import overload

from unilab_core.backends.registry import make_backend
from unilab_core.config.env import EnvConfig
from unilab_core.config.errors import unknown_name
from unilab_core.config.gym_env import GymEnvConfig
from unilab_core.contracts import Env
from unilab_core.envs.manager_based import ManagerBasedEnv
from unilab_core.robots.robot import build_model
from unilab_core.tasks.registry import find_task


@overload
def make_env(
    task: str,
    sim: str,
    env_cfg: EnvConfig,
    *,
    num_envs: int,
    seed: int,
    num_threads: int,
    spread_episodes: bool = True,
) -> ManagerBasedEnv: ...


@overload
def make_env(
    task: str,
    sim: str,
    env_cfg: EnvConfig | GymEnvConfig,
    *,
    num_envs: int,
    seed: int,
    num_threads: int,
    spread_episodes: bool = True,
) -> Env: ...


def make_env(
    task: str,
    sim: str,
    env_cfg: EnvConfig | GymEnvConfig,
    *,
    num_envs: int,
    seed: int,
    num_threads: int,
    spread_episodes: bool = True,
) -> Env:
    """Build the environments of one process.

    Args:
        task: id of the registry.
        sim: backend that the task supports.
        env_cfg: terms and physics, or the settings of a `gym:` task.
        num_envs: environments.
        seed: of every random draw in them.
        num_threads: physics threads, the caller's included; results do not depend on it.
        spread_episodes: start at random episode lengths (training) instead of at zero (evaluation).
    """
    if isinstance(env_cfg, GymEnvConfig):
        from unilab_core.envs.gym_env import GymEnv  # the library is an extra

        return GymEnv(task, env_cfg, num_envs=num_envs, seed=seed)
    found = find_task(task)
    if sim not in found.sims:
        raise unknown_name(f"backend for {task}", sim, found.sims)
    model = build_model(found.robot, env_cfg.physics, env_cfg.sim_dt)
    return ManagerBasedEnv(
        task=task,
        sim=sim,
        config=env_cfg,
        robot=found.robot,
        model=model,
        backend=make_backend(sim, model, num_envs, num_threads),
        seed=seed,
        spread_episodes=spread_episodes,
    )
