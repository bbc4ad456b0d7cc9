"""From the command line to a Config: YAML layers through Hydra, then the frozen dataclasses.

Later layers win:

    1. conf/<algo>/config.yaml                      the algorithm's defaults
    2. conf/<algo>/task/<task>/base.yaml            the task (it pulls conf/env/<task>.yaml)
    3. conf/<algo>/task/<task>/published.yaml       only with env.rewards_preset=published
    4. conf/<algo>/task/<task>/<sim>.yaml           what one physics backend changes
    5. conf/hardware/<profile>.yaml                 what the machine changes for every algorithm
    6. conf/<algo>/hardware/<profile>.yaml          ... and for this one (sizes, update ratio)
    7. conf/<algo>/preset/<preset>.yaml             only where such a file exists
    8. KEY=VALUE of the command line

Tasks `gym:<id>` take task/gym/base.yaml, then task/gym_<id>/base.yaml where there is one, and both
after layer 6: how small a task is does not depend on the machine.

Hydra and omegaconf are imported inside `compose` alone: children, monitors and `--help` must not
pay a third of a second for them.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import unilab_core
from unilab_core.config.algo import ALGO_NAMES
from unilab_core.config.algo_registry import ALGO_CONFIGS
from unilab_core.config.config import Config, config_from_dict
from unilab_core.config.errors import ConfigError, unknown_name
from unilab_core.config.gym_env import SIM as GYM_SIM
from unilab_core.config.gym_env import gym_id, is_gym_task
from unilab_core.config.hardware import PROFILES, HardwareConfig, detect_profile
from unilab_core.config.strict import declared_keys
from unilab_core.config.training import TrainingConfig

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from unilab_core.config.overrides import Override

SIM_NAMES = ("mujoco", "mjwarp")
NOT_YET_SIMS = ("mjwarp",)
GYM_FOLDER = "gym"
_ROOT = "unilab_root"


def conf_dir() -> Path:
    """The YAML files: inside an installed wheel beside the code, in a checkout at its root."""
    package = Path(unilab_core.__file__).parent
    installed = package / "conf"
    return installed if installed.is_dir() else package.parent / "conf"


def compose(
    algo: str,
    task: str,
    sim: str = "mujoco",
    overrides: list[str] | None = None,
    *,
    base: dict[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    conf: Path | None = None,
) -> Config:
    """Compose and check one run; every mistake is a one-line ConfigError.

    Args:
        algo: name as on the command line.
        task: name of a folder under conf/<algo>/task.
        sim: physics backend.
        overrides: KEY=VALUE texts.
        base: plain configuration of an earlier run; replaces layers 1 to 7.
        environ: environment variables, for the detection of a GPU.
        conf: folder of the YAML files, for tests.
    """
    from omegaconf import OmegaConf

    from unilab_core.config.overrides import apply_overrides, last_value, parse_overrides

    folder = conf or conf_dir()
    if is_gym_task(task):
        sim = _gym_sim(task, sim)
    _check_names(folder, algo, task, sim)
    parsed = parse_overrides(overrides or [])
    environ = os.environ if environ is None else environ
    profile = _profile(last_value(parsed, "hardware.profile", "auto"), environ)
    values = [item for item in parsed if item.key != "hardware.profile"]
    if base is None:
        layers = _layers(folder, algo, task, sim, profile, parsed)
        config = _compose_layers(folder, layers)
    else:
        _check_plain(base, "")
        config = OmegaConf.create(base)
    OmegaConf.set_struct(config, False)
    if base is None or len(values) < len(parsed):
        config.hardware = {"profile": profile}
    flags = {"algo.algo": algo, "training.task_name": task, "training.sim_backend": sim}
    _check_flags(values, flags)
    for key, name in flags.items():
        OmegaConf.update(config, key, name, force_add=True)
    apply_overrides(config, values, _declared(algo))
    return config_from_dict(_plain(config))


def task_names(folder: Path, algo: str) -> list[str]:
    """Tasks of our own that `algo` has settings for; `gym:<id>` is besides them."""
    names = (path.parent.name for path in (folder / algo / "task").glob("*/base.yaml"))
    return sorted(name for name in names if name.split("_")[0] != GYM_FOLDER)


def _gym_sim(task: str, sim: str) -> str:
    """These tasks bring their own physics; the flag's default means no choice was made."""
    if sim not in (SIM_NAMES[0], GYM_SIM):
        raise ConfigError(f"--sim {sim}: {task} runs on {GYM_SIM} only")
    return GYM_SIM


def _check_names(folder: Path, algo: str, task: str, sim: str) -> None:
    """Unknown names name the nearest; declared ones that are not there yet say so."""
    if algo not in ALGO_NAMES:
        raise unknown_name("algorithm", algo, ALGO_NAMES)
    if is_gym_task(task):
        gym_id(task)
        if not (folder / algo / "task" / GYM_FOLDER / "base.yaml").is_file():
            raise ConfigError(f"--task {task}: {algo} has no settings for gym tasks")
        return
    if sim not in SIM_NAMES:
        raise unknown_name("physics backend", sim, SIM_NAMES)
    if sim in NOT_YET_SIMS:
        raise ConfigError(f"--sim {sim}: not part of this version yet; use --sim mujoco")
    tasks = task_names(folder, algo)
    if task not in tasks:
        raise unknown_name("task", task, tasks)


def _profile(asked: object, environ: Mapping[str, str]) -> str:
    if asked == "auto":
        return detect_profile(environ)
    if asked not in PROFILES:
        error = unknown_name("value", str(asked), ("auto", *PROFILES))
        raise ConfigError(f"hardware.profile: {error}")
    return str(asked)


def _layers(
    folder: Path, algo: str, task: str, sim: str, profile: str, overrides: list["Override"]
) -> list[str]:
    """Files of the layers 1 to 7, in order, as Hydra names them (no suffix)."""
    from unilab_core.config.overrides import last_value

    machine = [f"hardware/{profile}", f"{algo}/hardware/{profile}"]
    preset = last_value(overrides, "algo.preset", None)
    named = isinstance(preset, str) and preset.isidentifier()
    chosen = [f"{algo}/preset/{preset}"] if named else []

    def existing(names: list[str]) -> list[str]:
        return [name for name in names if (folder / f"{name}.yaml").is_file()]

    if is_gym_task(task):
        own = f"{algo}/task/{task.replace(':', '_')}/base"
        base = f"{algo}/task/{GYM_FOLDER}/base"
        return [f"{algo}/config", *existing(machine), base, *existing([own, *chosen])]
    at = f"{algo}/task/{task}"
    layers = [f"{algo}/config", f"{at}/base"]
    if last_value(overrides, "env.rewards_preset", "default") == "published":
        if not (folder / at / "published.yaml").is_file():
            raise ConfigError(f"env.rewards_preset=published: {task} has no published rewards")
        layers.append(f"{at}/published")
    return [*layers, *existing([f"{at}/{sim}", *machine, *chosen])]


def _compose_layers(folder: Path, layers: list[str]) -> "DictConfig":
    """Merge the files with Hydra; each is placed at the root, whatever folder it lies in."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    defaults = [f"{name}@_global_" for name in layers]
    ConfigStore.instance().store(name=_ROOT, node={"defaults": defaults})
    try:
        with initialize_config_dir(config_dir=str(folder.resolve()), version_base="1.3"):
            return hydra_compose(config_name=_ROOT)
    except RecursionError:
        raise ConfigError(f"cannot compose {layers[0]}: a value contains itself") from None
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ConfigError(f"cannot compose {layers[0]}: {lines[0] if lines else error}") from None


def _check_flags(values: list["Override"], flags: dict[str, str]) -> None:
    """The names of the flags are keys too; a KEY=VALUE that contradicts its flag is an error."""
    for item in values:
        if item.key in flags and item.value != flags[item.key]:
            raise ConfigError(f"{item.key}={item.value} contradicts the flag: {flags[item.key]!r}")


def _declared(algo: str) -> list[str]:
    """Keys that a dataclass declares, whether or not a file mentions them."""
    return [
        *declared_keys(ALGO_CONFIGS[algo], "algo"),
        *declared_keys(TrainingConfig, "training"),
        *declared_keys(HardwareConfig, "hardware"),
        "env.rewards_preset",
    ]


def _check_plain(value: object, key: str) -> None:
    """A stored configuration is resolved: `${...}` in it would read this shell's environment."""
    if isinstance(value, dict):
        for name, item in value.items():
            _check_plain(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for item in value:
            _check_plain(item, key)
    elif isinstance(value, str) and "${" in value:
        raise ConfigError(f"{key}: got {value[:80]!r}, expected a plain value in a stored run")


def _plain(config: "DictConfig") -> dict[str, Any]:
    """Resolve interpolations; a value still missing (`???`) names its key."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        data = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).splitlines()[0]) from None
    assert isinstance(data, dict)
    return {str(key): value for key, value in data.items()}
