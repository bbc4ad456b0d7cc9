"""Blocks in turn, off on off on ... off, and their arithmetic.

A shared machine drifts: each block of `on` is compared with the two of `off` beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

from unilab_core.config.errors import ConfigError

T = TypeVar("T")


def alternate(blocks: int, measure: Callable[[bool], T]) -> tuple[list[T], list[T]]:
    """Measure ``2 * blocks + 1`` blocks, the first and the last of them off.

    Args:
        blocks: how many are on.
        measure: runs one block; its argument says whether it is on.

    Returns:
        What the blocks that were off gave, and those that were on.

    Raises:
        ConfigError: no block would be on.
    """
    if blocks < 1:
        raise ConfigError(f"blocks: got {blocks}, expected at least 1")
    off, on = [measure(False)], []
    for _ in range(blocks):
        on.append(measure(True))
        off.append(measure(False))
    return off, on


def slowdowns_pct(off: Sequence[float], on: Sequence[float]) -> list[float]:
    """Each speed of `on` against the mean of the two of `off` beside it; positive is slower.

    Raises:
        ValueError: `off` has not one more than `on`.
    """
    beside = [(before + after) / 2.0 for before, after in itertools.pairwise(off)]
    return [100.0 * (1.0 - speed / mean) for speed, mean in zip(on, beside, strict=True)]


def differences_pct(off: Sequence[float]) -> list[float]:
    """What two neighbours of `off` differ by: below that a slowdown cannot be told from noise."""
    return [100.0 * abs(1.0 - after / before) for before, after in itertools.pairwise(off)]
