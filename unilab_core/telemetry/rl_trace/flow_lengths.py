"""Lengths of transitions with their percentiles, where most of them stay as they are.

The lengths of blocks that have come to rest are kept as one sorted array per transition, so that a
percentile takes a search among them and a sort of the few that still change. The results are those
of `numpy.percentile` over all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
QUANTILES = (0.5, 0.9, 0.99)
MAX_SORTED = 100_000
"""Where more than these still change, to select among all costs less than to sort them."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Milliseconds of one transition; whole numbers, so that sums are exact in any order."""

    settled: Floats
    """Sorted."""
    rest: Floats

    def __len__(self) -> int:
        return len(self.settled) + len(self.rest)

    @property
    def mean(self) -> float:
        """Mean of all."""
        return float(self.settled.sum() + self.rest.sum()) / len(self)

    @property
    def max(self) -> float:
        """The longest of all."""
        longest = [float(values.max()) for values in (self.settled[-1:], self.rest) if len(values)]
        return max(longest)

    def percentiles(self) -> list[float]:
        """The values at QUANTILES, linear between order statistics."""
        if len(self.rest) > MAX_SORTED:
            values = np.concatenate((self.settled, self.rest))
            return np.percentile(values, [100.0 * q for q in QUANTILES]).tolist()
        at = [(len(self) - 1) * q for q in QUANTILES]
        low = [int(place) for place in at]
        high = [min(place + 1, len(self) - 1) for place in low]
        values = self._order_statistics(np.array(low + high))
        result = []
        for place, here, a, b in zip(at, low, values[: len(low)], values[len(low) :], strict=True):
            share = place - here
            result.append(a + (b - a) * share if share < 0.5 else b - (b - a) * (1.0 - share))
        return result

    def _order_statistics(self, ranks: NDArray[np.int64]) -> list[float]:
        """Values at these places of both arrays sorted together."""
        rest = np.sort(self.rest)
        # Place that each of the rest has among all; what lies between is settled.
        places = np.searchsorted(self.settled, rest, side="right") + np.arange(len(rest))
        before = np.searchsorted(places, ranks)
        result = []
        for rank, num_rest in zip(ranks.tolist(), before.tolist(), strict=True):
            own = num_rest < len(rest) and places[num_rest] == rank
            result.append(float(rest[num_rest] if own else self.settled[rank - num_rest]))
        return result


class SettledLengths:
    """Sorted lengths per transition of all blocks that were added."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._sorted = {name: np.empty(0) for name in names}

    def add(self, blocks: Sequence[Mapping[str, Floats]]) -> None:
        """Take in the lengths of blocks."""
        for name in self._names:
            fresh = np.sort(np.concatenate([block[name] for block in blocks]))
            joined = np.concatenate((self._sorted[name], fresh))
            joined.sort(kind="stable")  # two sorted runs: a merge
            self._sorted[name] = joined

    def remove(self, block: Mapping[str, Floats]) -> None:
        """Give back the lengths of a block that was added."""
        for name in self._names:
            kept, gone = self._sorted[name], np.sort(block[name])
            repeats = np.arange(len(gone)) - np.searchsorted(gone, gone)
            self._sorted[name] = np.delete(kept, np.searchsorted(kept, gone) + repeats)

    def clear(self) -> None:
        """Forget everything."""
        self._sorted = {name: np.empty(0) for name in self._names}

    def lengths(self, name: str, rest: Sequence[Floats]) -> Lengths:
        """All lengths of a transition, with those of blocks that were not added."""
        return Lengths(self._sorted[name], np.concatenate(rest) if rest else np.empty(0))
