"""KEY=VALUE of the command line, in Hydra's grammar, applied after all files.

    algo.num_envs=512                  an existing key
    +env.rewards.jump={function: ...}  a new entry in an open section (the terms of the environment)
    ~env.rewards.contact               removes an entry

Hydra parses the text; applying it here gives errors that name the nearest key, which Hydra's own
loader does not.
"""

from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from unilab_core.config.errors import ConfigError, unknown_name


@dataclass(kw_only=True, slots=True, frozen=True)
class Override:
    """One parsed KEY=VALUE."""

    key: str
    """Dotted key."""
    value: Any
    """Plain value; None for a removal."""
    kind: str
    """`set`, `add` or `remove`."""


def parse_overrides(texts: list[str]) -> list[Override]:
    """Parse every KEY=VALUE; a text that is none of the three forms is a ConfigError."""
    parser = OverridesParser.create()
    parsed: list[Override] = []
    for text in texts:
        try:
            item = parser.parse_override(text)
        except HydraException:
            raise ConfigError(f"cannot read {text!r}: expected KEY=VALUE") from None
        if item.is_sweep_override():
            raise ConfigError(f"cannot read {text!r}: one value per key, sweeps are not supported")
        kind = "remove" if item.is_delete() else "add" if item.is_add() else "set"
        parsed.append(Override(key=item.key_or_group, value=item.value(), kind=kind))
    return parsed


def last_value(overrides: list[Override], key: str, default: object) -> object:
    """The value that the command line gives `key`; needed for keys that choose files."""
    for item in reversed(overrides):
        if item.key == key and item.kind != "remove":
            return item.value
    return default


def apply_overrides(config: DictConfig, overrides: list[Override], declared: list[str]) -> None:
    """Change `config` in place; `declared` are the keys that exist although no file names them."""
    for item in overrides:
        tree = OmegaConf.to_container(config, resolve=False)
        exists = _exists(tree, item.key)
        if item.kind == "remove":
            if not exists:
                raise unknown_name("key", item.key, _all_keys(tree))
            parent, _, leaf = item.key.rpartition(".")
            node = OmegaConf.select(config, parent) if parent else config
            del node[leaf]
            continue
        open_entry = item.kind == "add" and item.key.startswith("env.")
        if not (exists or open_entry or item.key in declared):
            raise unknown_name("key", item.key, {*_all_keys(tree), *declared})
        try:
            OmegaConf.update(config, item.key, item.value, merge=True, force_add=True)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            first_line = str(error).splitlines()[0]
            raise ConfigError(f"cannot set {item.key}: {first_line}") from None


def _exists(tree: object, key: str) -> bool:
    for name in key.split("."):
        if not isinstance(tree, dict) or name not in tree:
            return False
        tree = tree[name]
    return True


def _all_keys(tree: object, path: str = "") -> list[str]:
    """Dotted keys of every leaf and section, for the nearest-name search."""
    if not isinstance(tree, dict):
        return []
    keys: list[str] = []
    for name, item in tree.items():
        full = f"{path}.{name}" if path else str(name)
        keys += [full, *_all_keys(item, full)]
    return keys
