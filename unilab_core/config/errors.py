"""The one error of the configuration, and how an unknown name is worded."""

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A setting that the user can correct; the message is one line."""


def unknown_name(kind: str, got: str, valid: Iterable[str]) -> ConfigError:
    """Error for a name that does not exist, with the nearest valid ones.

    `kind` is what was looked up, for example "task" or "key".
    """
    names = sorted(valid)
    # A dotted key is often right in its last part only: training.num_envs -> algo.num_envs.
    leaf = got.rpartition(".")[2]
    near = [name for name in names if "." in got and name.rpartition(".")[2] == leaf][:3]
    near = near or difflib.get_close_matches(got, names, n=3, cutoff=0.5)
    if near:
        hint = f"nearest: {', '.join(near)}"
    elif names:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        hint = f"valid: {shown}"
    else:
        hint = "there is none"
    return ConfigError(f"unknown {kind} {got!r}; {hint}")
