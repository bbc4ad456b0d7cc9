"""The `env` section of tasks named `gym:<id>`: any continuous-control environment of Gymnasium.

    --task gym:Pendulum-v1 env.max_episode_steps=100 +env.make_kwargs.g=9.81

The run directory and the configuration folder use `gym_<id>`, because `:` is no good in paths.
"""

import importlib.util
from dataclasses import dataclass, field
from typing import Any, Literal

from unilab_core.config.algo import require
from unilab_core.config.errors import ConfigError
from unilab_core.config.strict import dataclass_from_dict, describe, to_plain

PREFIX = "gym:"
SIM = "gym"
"""Name of the backend that these tasks run on."""


@dataclass(kw_only=True, slots=True, frozen=True)
class GymEnvConfig:
    """What can be changed about a foreign environment from outside."""

    rewards_preset: Literal["default"] = "default"
    """There is one: the environment's own."""
    max_episode_steps: int | None = None
    """Time limit in control steps; null is the one registered with the id."""
    make_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of `gymnasium.make`."""

    def __post_init__(self) -> None:
        """Limits."""
        steps = self.max_episode_steps
        require(steps is None or steps >= 1, "max_episode_steps", steps, "an integer >= 1, or null")

    @classmethod
    def from_dict(cls, data: object) -> "GymEnvConfig":
        """Check plain values and freeze them; a ConfigError names what is wrong."""
        if not isinstance(data, dict):
            raise ConfigError(f"env: expected a section of keys, got {describe(data)}")
        kwargs = data.get("make_kwargs", {})
        if not isinstance(kwargs, dict):
            raise ConfigError(f"env.make_kwargs: expected a section, got {describe(kwargs)}")
        rest = {key: value for key, value in data.items() if key != "make_kwargs"}
        checked = dataclass_from_dict(_WithoutKwargs, rest, "env")
        return cls(
            rewards_preset=checked.rewards_preset,
            max_episode_steps=checked.max_episode_steps,
            make_kwargs={str(key): value for key, value in kwargs.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `from_dict` is the inverse."""
        return to_plain(self)


@dataclass(kw_only=True, slots=True, frozen=True)
class _WithoutKwargs:
    rewards_preset: Literal["default"] = "default"
    max_episode_steps: int | None = None


def is_gym_task(task: str) -> bool:
    """Whether a task name means an environment of Gymnasium."""
    return task.startswith(PREFIX)


def gym_id(task: str) -> str:
    """The id behind the prefix; a ConfigError when there is none or Gymnasium is not installed."""
    name = task.removeprefix(PREFIX)
    if not name:
        raise ConfigError(f"--task {task}: expected an id after the colon, as in gym:Pendulum-v1")
    if importlib.util.find_spec("gymnasium") is None:
        raise ConfigError(f"--task {task}: needs the extra: pip install 'unilab-rl[gym]'")
    return name
