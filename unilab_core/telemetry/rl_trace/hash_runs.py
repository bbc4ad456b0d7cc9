"""A set of 64-bit hashes that only grows, as a few sorted runs.

8 bytes per hash, where a Python set needs about 60. Batches are looked up and added as a whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class HashRuns:
    """Sorted runs of falling size; two of similar size are merged."""

    def __init__(self) -> None:
        self._runs: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def add(self, hashes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Add a batch; True where a hash is new, and the first of its kind in the batch."""
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        fresh = np.ones(len(ordered), dtype=bool)
        fresh[1:] = ordered[1:] != ordered[:-1]
        for run in self._runs:
            at = np.searchsorted(run, ordered)
            at[at == len(run)] = len(run) - 1
            fresh &= run[at] != ordered
        if fresh.any():
            self._push(ordered[fresh])
        result = np.empty(len(hashes), dtype=bool)
        result[order] = fresh
        return result

    def _push(self, run: NDArray[np.int64]) -> None:
        self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-1]) * 3 >= len(self._runs[-2]):
            last = self._runs.pop()
            merged = np.concatenate((self._runs.pop(), last))
            merged.sort(kind="stable")  # two sorted runs: a merge
            self._runs.append(merged)
