"""The whole configuration of a run: four frozen sections.

Written to run_config.json by the launcher and read back by every other process, none of which needs
hydra: `config_from_dict(json.load(...)["config"])`.
"""

from dataclasses import dataclass
from typing import Any

from unilab_core.config.algo import AlgoConfig
from unilab_core.config.algo_registry import ALGO_CONFIGS
from unilab_core.config.env import EnvConfig
from unilab_core.config.errors import ConfigError, unknown_name
from unilab_core.config.gym_env import GymEnvConfig, is_gym_task
from unilab_core.config.hardware import HardwareConfig
from unilab_core.config.strict import dataclass_from_dict, describe, to_plain
from unilab_core.config.training import TrainingConfig

SECTIONS = ("algo", "training", "env", "hardware")


@dataclass(kw_only=True, slots=True, frozen=True)
class Config:
    """One run; see the sections for the keys."""

    algo: AlgoConfig
    """Algorithm: the class of the section tells which."""
    training: TrainingConfig
    """The run around it."""
    env: EnvConfig | GymEnvConfig
    """Environment: physics, terms, randomisation; or what a foreign one can be told."""
    hardware: HardwareConfig
    """What the numbers were sized for."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `config_from_dict` is the inverse."""
        return {
            "algo": to_plain(self.algo),
            "training": to_plain(self.training),
            "env": self.env.to_dict(),
            "hardware": to_plain(self.hardware),
        }


def config_from_dict(data: dict[str, Any]) -> Config:
    """Check plain values and freeze them; a one-line ConfigError names what is wrong."""
    for key in data:
        if key not in SECTIONS:
            raise unknown_name("section", key, SECTIONS)
    for section in SECTIONS:
        if not isinstance(data.get(section), dict):
            got = describe(data[section]) if section in data else "nothing"
            raise ConfigError(f"{section}: expected a section of keys, got {got}")
    name = data["algo"].get("algo")
    if name not in ALGO_CONFIGS:
        raise unknown_name("algorithm", str(name), ALGO_CONFIGS)
    return Config(
        algo=dataclass_from_dict(ALGO_CONFIGS[name], data["algo"], "algo"),
        training=dataclass_from_dict(TrainingConfig, data["training"], "training"),
        env=_env_from_dict(data["env"], str(data["training"].get("task_name", ""))),
        hardware=dataclass_from_dict(HardwareConfig, data["hardware"], "hardware"),
    )


def _env_from_dict(data: dict[str, Any], task: str) -> EnvConfig | GymEnvConfig:
    if is_gym_task(task):
        return GymEnvConfig.from_dict(data)
    try:
        return EnvConfig.from_dict(data)
    except ConfigError:
        raise
    except ValueError as error:
        text = str(error)
        raise ConfigError(text if text.startswith("env") else f"env: {text}") from None
