"""The deterministic evaluation of `gym:` tasks: the most likely action, 20 whole episodes.

Every episode runs in its own copy, seeded apart from training; a copy that has finished its episode
is stepped on with the others but not counted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import imageio.v2 as imageio
import numpy as np

from unilab_core.config.errors import ConfigError
from unilab_core.config.gym_env import GymEnvConfig, gym_id
from unilab_core.contracts import FloatArray
from unilab_core.envs import make_env

EPISODES = 20
SEED = 1_000_000
"""First seed of the evaluation: far from those of training."""
VIEWED_EPISODES = 5
MAX_STEPS = 1_000_000
"""Where an environment has no time limit of its own."""


@dataclass(kw_only=True, slots=True, frozen=True)
class GymEvaluationResult:
    """What `unilab-eval` prints."""

    task: str
    episodes: int
    mean_return: float
    std_return: float


def evaluate_gym(
    policy: Callable[[FloatArray], FloatArray],
    task: str,
    config: GymEnvConfig,
    *,
    episodes: int = EPISODES,
) -> GymEvaluationResult:
    """Play whole episodes; returns are the environment's own rewards, undiscounted."""
    env = make_env(task, "gym", config, num_envs=episodes, seed=SEED, num_threads=1)
    returns = np.zeros(episodes, np.float64)
    running = np.ones(episodes, np.bool_)
    try:
        result = env.reset()
        for _ in range(env.spec.max_episode_steps or MAX_STEPS):
            result = env.step(policy(result.obs))
            returns[running] += result.reward[running]
            running &= ~(result.terminated | result.truncated)
            if not running.any():
                break
    finally:
        env.close()
    return GymEvaluationResult(
        task=task,
        episodes=episodes,
        mean_return=float(returns.mean()),
        std_return=float(returns.std()),
    )


def play_gym_video(
    policy: Callable[[FloatArray], FloatArray],
    task: str,
    config: GymEnvConfig,
    path: Path,
    *,
    num_steps: int = 500,
    num_envs: int = 1,
) -> None:
    """Film one episode, or `num_steps` of it, of each of `num_envs` environments side by side.

    Raises:
        ConfigError: this environment cannot be drawn here (a library is missing).
    """
    films: list[list[np.ndarray]] = []
    try:
        for index in range(num_envs):
            with gymnasium.make(gym_id(task), render_mode="rgb_array", **config.make_kwargs) as env:
                films.append(_episode_frames(env, policy, seed=SEED + index, num_steps=num_steps))
                fps = float(env.metadata.get("render_fps", 30))
    except (gymnasium.error.Error, ImportError) as error:
        raise ConfigError(f"video of {task}: {str(error).splitlines()[0]}") from None
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    imageio.mimwrite(partial, _side_by_side(films), fps=fps, macro_block_size=4)  # pyright: ignore
    partial.replace(path)


def _episode_frames(
    env: gymnasium.Env, policy: Callable[[FloatArray], FloatArray], *, seed: int, num_steps: int
) -> list[np.ndarray]:
    """Frames [height, width, 3] of one episode, or of its first `num_steps` steps."""
    obs, _ = env.reset(seed=seed)
    frames = [np.asarray(env.render())]
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    low, high = space.low.ravel(), space.high.ravel()
    for _ in range(num_steps):
        action = policy(np.asarray(obs, np.float32).reshape(1, -1))[0].clip(low, high)
        obs, _, terminated, truncated, _ = env.step(action.reshape(space.shape))
        frames.append(np.asarray(env.render()))
        if terminated or truncated:
            break
    return frames


def _side_by_side(films: list[list[np.ndarray]]) -> list[np.ndarray]:
    """One film of all: on a grid, nearly square; who has ended keeps the last frame."""
    columns = math.ceil(math.sqrt(len(films)))
    black = np.zeros_like(films[0][0])
    whole = []
    for index in range(max(map(len, films))):
        frames = [film[min(index, len(film) - 1)] for film in films]
        frames += [black] * (-len(frames) % columns)
        rows = [np.hstack(frames[i : i + columns]) for i in range(0, len(frames), columns)]
        whole.append(np.vstack(rows))
    return whole


def view_gym(policy: Callable[[FloatArray], FloatArray], task: str, config: GymEnvConfig) -> None:
    """Show a few episodes in the environment's own window.

    Raises:
        ConfigError: this environment cannot be shown (a library is missing).
    """
    try:
        env = gymnasium.make(gym_id(task), render_mode="human", **config.make_kwargs)
        space = env.action_space
        assert isinstance(space, gymnasium.spaces.Box)
        low, high = space.low.ravel(), space.high.ravel()
        for episode in range(VIEWED_EPISODES):
            obs, _ = env.reset(seed=episode)
            ended = False
            while not ended:
                action = policy(np.asarray(obs, np.float32).reshape(1, -1))[0].clip(low, high)
                obs, _, terminated, truncated, _ = env.step(action.reshape(space.shape))
                ended = terminated or truncated
        env.close()
    except (gymnasium.error.Error, ImportError) as error:
        raise ConfigError(f"viewer of {task}: {str(error).splitlines()[0]}") from None
