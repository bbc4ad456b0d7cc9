"""Term names of the configuration into callables.

A plain name is looked up in one module of `unilab_core.envs.mdp`; `package.module:name` reaches
functions outside. Parameters are checked against the signature here, so that a misspelt one is
named before the first step instead of surfacing as a TypeError in it.
"""

import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from numpy.typing import NDArray

from unilab_core.config.errors import ConfigError, unknown_name
from unilab_core.envs.term_view import TermView

Term = Callable[..., Any]


def resolve_term(
    module: ModuleType, function: str, params: dict[str, Any], given: tuple[str, ...], path: str
) -> Term:
    """Find a term and check its parameters.

    Args:
        module: where plain names live.
        function: name of the configuration.
        params: keyword arguments of the configuration.
        given: positional parameters that the manager passes.
        path: dotted key of the term, for messages.
    """
    term = _find(module, function, path)
    names = list(inspect.signature(term).parameters)
    accepted = names[len(given) :]
    for name in params:
        if name not in accepted:
            raise unknown_name("parameter", f"{path}.params.{name}", _dotted(path, accepted))
    for name in accepted:
        default = inspect.signature(term).parameters[name].default
        if default is inspect.Parameter.empty and name not in params:
            raise ConfigError(f"{path}.params.{name}: missing for {function}")
    return term


def first_value(term: Term, view: TermView, params: dict[str, Any], path: str) -> NDArray[Any]:
    """A term's result on the first look; what it raises there is a setting that does not fit."""
    try:
        return term(view, **params)
    except ConfigError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"{path}: does not work with params {params}: {detail}") from error


def check_shape(path: str, got: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """A term's result, checked once."""
    if got != expected:
        raise ValueError(f"{path}: got shape {got}, expected {expected}")


def _find(module: ModuleType, function: str, path: str) -> Term:
    if ":" in function:
        module_name, _, function = function.partition(":")
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise ConfigError(f"{path}.function: {error}") from None
    names = [
        name
        for name, value in vars(module).items()
        if callable(value) and name == name.lower() and _is_own(value, name, module)
    ]
    if function not in names:
        raise unknown_name(f"function in {path}", function, names)
    return vars(module)[function]


def _dotted(path: str, names: list[str]) -> list[str]:
    return [f"{path}.params.{name}" for name in names]


def _is_own(value: Term, name: str, module: ModuleType) -> bool:
    """Defined there and public: not an import, not a helper."""
    return not name.startswith("_") and value.__module__ == module.__name__
