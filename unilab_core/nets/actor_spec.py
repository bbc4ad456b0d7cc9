"""What the specs of all actors share: plain values for a weights_only file, and action bounds."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, ClassVar, Self


class PlainSpec:
    """Base of frozen dataclasses that are stored next to their weights."""

    __slots__ = ()
    label: ClassVar[str] = "actor"
    """What an error calls the spec."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, so that a weights_only file can hold it."""
        plain = asdict(self)  # pyright: ignore[reportArgumentType] - every subclass is a dataclass
        return {key: list(v) if isinstance(v, tuple) else v for key, v in plain.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`; unknown or missing keys are errors."""
        names = {field.name for field in fields(cls)}  # pyright: ignore[reportArgumentType]
        if set(values) != names:
            raise ValueError(f"{cls.label}: got keys {sorted(values)}, expected {sorted(names)}")
        plain: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        return cls(**plain)


def check_bounds(low: tuple[float, ...], high: tuple[float, ...]) -> None:
    """Action bounds, one pair per column; ValueError where they are not."""
    if len(low) != len(high) or not low:
        raise ValueError(f"action bounds: got {len(low)} low and {len(high)} high")
    if any(top <= bottom for bottom, top in zip(low, high, strict=True)):
        raise ValueError("action bounds: expected every high above its low")
