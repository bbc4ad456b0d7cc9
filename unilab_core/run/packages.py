"""Whether an optional package is installed, found out without importing it."""

from importlib.util import find_spec


def is_installed(name: str) -> bool:
    """True for a real package; a mere folder of that name, as `wandb` leaves one, is none."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None
