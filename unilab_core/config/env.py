"""The `env` section: physics, and one entry per term of each manager.

A term names a function of `unilab_core.envs.mdp` (or `package.module:function`) and its
parameters. A term set to null is left out, so that an overlay can remove one. The section is plain
data: whether a function exists and takes these parameters is checked where the environment is
built.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from unilab_core.config.errors import ConfigError, unknown_name
from unilab_core.config.strict import convert, dataclass_from_dict, describe, to_plain

T = TypeVar("T")
Params = dict[str, Any]
CRITIC_GROUP = "critic"
POLICY_GROUP = "policy"


@dataclass(kw_only=True, slots=True, frozen=True)
class ObservationTermConfig:
    """One block of an observation vector; noise, clip and scale are applied in this order."""

    function: str
    params: Params = field(default_factory=dict)
    noise: float = 0.0
    """Half width of uniform noise, in the term's unit; used only where env.noise is true."""
    clip: tuple[float, ...] | None = None
    """[low, high], or null."""
    scale: float = 1.0
    history: int = 1
    """Frames stacked, oldest first; 1 = only the newest."""

    def __post_init__(self) -> None:
        if self.history < 1:
            raise ValueError(f"history: got {self.history}, expected at least 1")
        if self.noise < 0.0:
            raise ValueError(f"noise: got {self.noise}, expected at least 0")
        _check_range("clip", self.clip)


@dataclass(kw_only=True, slots=True, frozen=True)
class ActionTermConfig:
    """Meaning of a block of the action vector."""

    function: str
    params: Params = field(default_factory=dict)


@dataclass(kw_only=True, slots=True, frozen=True)
class RewardTermConfig:
    """One summand of the reward: weight x function x ctrl_dt."""

    function: str
    weight: float
    params: Params = field(default_factory=dict)


@dataclass(kw_only=True, slots=True, frozen=True)
class TerminationTermConfig:
    """One reason for an episode to end."""

    function: str
    time_out: bool = False
    """True: truncated (bootstrap); false: terminated."""
    params: Params = field(default_factory=dict)


@dataclass(kw_only=True, slots=True, frozen=True)
class CommandTermConfig:
    """A goal or a clock that observations and rewards refer to by the entry's name."""

    function: str
    resampling_s: tuple[float, ...] | None = None
    """[low, high] of the time between two draws; null: drawn at the start of an episode only."""
    params: Params = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_range("resampling_s", self.resampling_s)


@dataclass(kw_only=True, slots=True, frozen=True)
class EventTermConfig:
    """Something done to the simulation at start-up, at a reset, or every so often."""

    function: str
    mode: Literal["startup", "reset", "interval"]
    interval_s: tuple[float, ...] | None = None
    """[low, high] of the time between two events of one environment; mode interval only."""
    domain_randomization: bool = False
    """True: only where env.domain_randomization is true."""
    params: Params = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_range("interval_s", self.interval_s)
        if (self.interval_s is not None) != (self.mode == "interval"):
            raise ValueError(f"interval_s: belongs to mode interval, got mode {self.mode}")


@dataclass(kw_only=True, slots=True, frozen=True)
class CurriculumTermConfig:
    """Something that becomes harder as episodes succeed."""

    function: str
    params: Params = field(default_factory=dict)


@dataclass(kw_only=True, slots=True, frozen=True)
class EnvConfig:
    """Everything that defines the Markov decision process of a run."""

    physics: Literal["fast", "reference"] = "fast"
    """Contact model: `fast` for training, `reference` for fidelity (about four times slower)."""
    rewards_preset: Literal["default", "published"] = "default"
    """Which settings the task's files were merged with."""
    sim_dt: float
    """Seconds per physics substep."""
    ctrl_dt: float
    """Seconds per control step; a multiple of sim_dt."""
    episode_length_s: float
    noise: bool = False
    """Add the observation noise that the terms declare."""
    domain_randomization: bool = False
    """Run the events marked domain_randomization."""
    observations: dict[str, dict[str, ObservationTermConfig]]
    """Groups `policy` and `critic`; terms in the order of the vector."""
    actions: dict[str, ActionTermConfig]
    rewards: dict[str, RewardTermConfig]
    terminations: dict[str, TerminationTermConfig]
    commands: dict[str, CommandTermConfig] = field(default_factory=dict)
    events: dict[str, EventTermConfig] = field(default_factory=dict)
    curriculum: dict[str, CurriculumTermConfig] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("sim_dt", "ctrl_dt", "episode_length_s"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected more than 0")
        if abs(self.ctrl_dt / self.sim_dt - self.num_substeps) > 1e-6 or self.num_substeps < 1:
            raise ValueError(f"ctrl_dt: got {self.ctrl_dt}, expected a multiple of {self.sim_dt}")
        if POLICY_GROUP not in self.observations:
            raise ValueError("observations: group 'policy' is missing")
        for group in self.observations:
            if group not in (POLICY_GROUP, CRITIC_GROUP):
                known = (POLICY_GROUP, CRITIC_GROUP)
                raise unknown_name("observation group", f"env.observations.{group}", known)
        for name in ("actions", "rewards", "terminations"):
            if not getattr(self, name):
                raise ValueError(f"{name}: expected at least one term")

    @property
    def num_substeps(self) -> int:
        """Physics substeps per control step."""
        return round(self.ctrl_dt / self.sim_dt)

    @property
    def max_episode_steps(self) -> int:
        """Control steps until an episode runs out of time."""
        return max(1, round(self.episode_length_s / self.ctrl_dt))

    @classmethod
    def from_dict(cls, data: object) -> "EnvConfig":
        """Check plain values (YAML or JSON) and freeze them; a ConfigError names what is wrong."""
        if not isinstance(data, dict):
            raise ConfigError(f"env: expected a section of keys, got {describe(data)}")
        declared = {item.name: item for item in fields(cls)}
        for key in data:
            if key not in declared:
                raise unknown_name("key", f"env.{key}", [f"env.{name}" for name in declared])
        values: dict[str, Any] = {}
        for name in declared:
            if name not in data:
                continue
            path = f"env.{name}"
            if name == "observations":
                groups = _entries(data[name], path)
                values[name] = {
                    group: _terms(ObservationTermConfig, terms, f"{path}.{group}")
                    for group, terms in groups.items()
                }
            elif name in _TERM_CLASSES:
                values[name] = _terms(_TERM_CLASSES[name], data[name], path)
            else:
                values[name] = convert(data[name], _SCALARS[name], path)
        try:
            return cls(**values)
        except ConfigError:
            raise
        except TypeError as error:
            raise ConfigError(f"env: {str(error).split('()', 1)[-1].strip()}") from None
        except ValueError as error:
            raise ConfigError(f"env.{error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `from_dict` is the inverse."""
        return to_plain(self)


_TERM_CLASSES: dict[str, type] = {
    "actions": ActionTermConfig,
    "rewards": RewardTermConfig,
    "terminations": TerminationTermConfig,
    "commands": CommandTermConfig,
    "events": EventTermConfig,
    "curriculum": CurriculumTermConfig,
}
_SCALARS: dict[str, Any] = {
    "physics": Literal["fast", "reference"],
    "rewards_preset": Literal["default", "published"],
    "sim_dt": float,
    "ctrl_dt": float,
    "episode_length_s": float,
    "noise": bool,
    "domain_randomization": bool,
}


def _terms(cls: type[T], data: object, path: str) -> dict[str, T]:
    """One section of named terms; null entries are dropped."""
    return {
        name: _term(cls, entry, f"{path}.{name}")
        for name, entry in _entries(data, path).items()
        if entry is not None
    }


def _term(cls: type[T], entry: object, path: str) -> T:
    """`params` is free-form; everything else is checked against the dataclass."""
    if not isinstance(entry, dict):
        raise ConfigError(f"{path}: expected a section of keys, got {describe(entry)}")
    params = entry.get("params", {})
    if not isinstance(params, dict):
        raise ConfigError(f"{path}.params: expected a section of keys, got {describe(params)}")
    checked = {key: value for key, value in entry.items() if key != "params"}
    build: Callable[..., T] = cls
    without_params = dataclass_from_dict(cls, checked, path)
    plain = {item.name: getattr(without_params, item.name) for item in fields(without_params)}  # pyright: ignore[reportArgumentType]
    return build(**{**plain, "params": {str(key): value for key, value in params.items()}})


def _entries(data: object, path: str) -> dict[str, Any]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a section of keys, got {describe(data)}")
    return {str(key): value for key, value in data.items()}


def _check_range(name: str, value: tuple[float, ...] | None) -> None:
    if value is not None and (len(value) != 2 or value[0] > value[1]):
        raise ValueError(f"{name}: got {list(value)}, expected [low, high]")
