"""Arithmetic of alternating blocks: off on off on ... off."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


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
