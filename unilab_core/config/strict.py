"""Plain values (from YAML or JSON) into frozen dataclasses, and back.

Nothing is guessed: an unknown key, a missing key or a value of another type is a ConfigError whose
one line names the full key, what was given and what is expected. The only conversion is int ->
float, because YAML writes `1` for `1.0`; list -> tuple follows from JSON having no tuples.
"""

import dataclasses
import types
import typing
from typing import Any, TypeVar

from unilab_core.config.errors import ConfigError, unknown_name

T = TypeVar("T")


def dataclass_from_dict(cls: type[T], data: object, path: str) -> T:
    """Build `cls` from a mapping; `path` is the dotted key of the section, for messages."""
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a section of keys, got {describe(data)}")
    fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, cls))}
    for key in data:
        if key not in fields:
            raise unknown_name("key", f"{path}.{key}", [f"{path}.{name}" for name in fields])
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in data:
            values[name] = convert(data[name], hints[name], f"{path}.{name}")
        elif _is_required(field):
            raise ConfigError(f"{path}.{name}: missing, expected {describe_type(hints[name])}")
    try:
        return cls(**values)
    except ConfigError:
        raise
    except ValueError as error:  # the checks of __post_init__ name the field, not the section
        raise ConfigError(f"{path}.{error}") from None


def convert(value: object, wanted: Any, path: str) -> Any:  # noqa: ANN401 - any declared type
    """One value as its declared type, or a ConfigError."""
    if dataclasses.is_dataclass(wanted):
        return dataclass_from_dict(typing.cast(type, wanted), value, path)
    origin = typing.get_origin(wanted)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(value, wanted, path)
    if origin is typing.Literal:
        if any(value == option and type(value) is type(option) for option in wanted.__args__):
            return value
        if isinstance(value, str):
            options = [str(option) for option in wanted.__args__]
            error = unknown_name("value", value, options)
            raise ConfigError(f"{path}: {error} ({describe_type(wanted)})")
    elif origin is tuple:
        if isinstance(value, list | tuple):
            item = wanted.__args__[0]
            return tuple(convert(x, item, f"{path}[{i}]") for i, x in enumerate(value))
    elif origin is dict:
        if isinstance(value, dict):
            item = wanted.__args__[1]
            return {str(k): convert(x, item, f"{path}.{k}") for k, x in value.items()}
    elif wanted is Any:
        return value
    elif wanted is type(None):
        if value is None:
            return None
    elif wanted is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif isinstance(value, wanted) and not (isinstance(value, bool) and wanted is int):
        return value
    raise ConfigError(f"{path}: got {describe(value)}, expected {describe_type(wanted)}")


def to_plain(value: object) -> Any:  # noqa: ANN401 - JSON-like
    """A dataclass as dicts and lists that JSON and YAML can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def declared_keys(cls: type, path: str) -> list[str]:
    """Every dotted key under `path` that `cls` declares, nested sections included."""
    keys: list[str] = []
    for name, hint in typing.get_type_hints(cls).items():
        if dataclasses.is_dataclass(hint):
            keys.extend(declared_keys(typing.cast(type, hint), f"{path}.{name}"))
        else:
            keys.append(f"{path}.{name}")
    return keys


def describe(value: object) -> str:
    """A value and its type for an error line, cut to a readable length."""
    if value is None:
        return "null"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def describe_type(wanted: Any) -> str:  # noqa: ANN401 - any declared type
    """A declared type in the words of the YAML file."""
    origin = typing.get_origin(wanted)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe_type(option) for option in wanted.__args__)
    if origin is typing.Literal:
        return "one of " + ", ".join(str(option) for option in wanted.__args__)
    if origin is tuple:
        return f"a list of {describe_type(wanted.__args__[0])}"
    if wanted is type(None):
        return "null"
    if dataclasses.is_dataclass(wanted) or origin is dict:
        return "a section of keys"
    if wanted is str:
        return "text"
    return "true or false" if wanted is bool else str(wanted.__name__)


def _convert_union(value: object, wanted: Any, path: str) -> Any:  # noqa: ANN401 - any union
    """First option that accepts the value; exact types before int -> float."""
    for option in sorted(wanted.__args__, key=lambda option: option is float):
        try:
            return convert(value, option, path)
        except ConfigError:
            continue
    raise ConfigError(f"{path}: got {describe(value)}, expected {describe_type(wanted)}")


def _is_required(field: dataclasses.Field) -> bool:
    no_default = field.default is dataclasses.MISSING
    return no_default and field.default_factory is dataclasses.MISSING
