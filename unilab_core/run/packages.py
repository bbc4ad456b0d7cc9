"""Whether an optional package is installed, found out without importing it."""

from importlib.util import find_spec


def is_installed(name: str) -> bool:
    """True for a real package: a mere folder of that name (`wandb/` in the working directory, as
    that tool leaves them) is not one.
    """
    spec = find_spec(name)
    return spec is not None and spec.origin is not None
