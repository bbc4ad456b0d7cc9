"""Which traced segments of the replay have been drawn, and which left it without being drawn.

A segment is `ticks_per_segment` vector ticks of one traced environment. Only whole segments count:
a row that is drawn while its segment is still being written makes the segment "drawn" as soon as
the next of its rows comes up. Nothing here touches the device; the caller hands over the rows that
were drawn from traced environments.

Legend: S segments that fit into the replay, K traced environments.
"""

from collections.abc import Sequence

import numpy as np

Found = list[tuple[int, list[int]]]
"""(number of the segment, its environments)."""


class DrawnSegments:
    """First draws and losses, in order of the segments."""

    def __init__(
        self, *, ticks_per_segment: int, replay_ticks: int, traced_envs: Sequence[int]
    ) -> None:
        self._ticks = ticks_per_segment
        self._replay_ticks = replay_ticks
        self._envs = np.array(traced_envs, dtype=np.int64)
        self._stride = int(self._envs[1]) if len(self._envs) > 1 else 0
        # One more than fits: the oldest is partly overwritten, the newest is being written.
        self._slots = replay_ticks // ticks_per_segment + 2
        self._drawn = np.zeros((self._slots, len(self._envs)), bool)
        self._oldest = 0

    def draw(self, ticks: np.ndarray, envs: np.ndarray, ticks_written: int) -> Found:
        """Segments drawn for the first time.

        Args:
            ticks: [N] absolute ticks of rows that were drawn.
            envs: [N] their environments, traced ones only.
            ticks_written: ticks stored when they were drawn.
        """
        segments = ticks // self._ticks
        whole = (segments + 1) * self._ticks <= ticks_written
        whole &= segments >= self._oldest
        segments, places = segments[whole], self._places(envs[whole])
        fresh = ~self._drawn[segments % self._slots, places]
        segments, places = segments[fresh], places[fresh]
        self._drawn[segments % self._slots, places] = True
        pairs = np.unique(np.stack([segments, places]), axis=1)
        return [
            (int(number), self._envs[pairs[1, pairs[0] == number]].tolist())
            for number in np.unique(pairs[0])
        ]

    def expire(self, ticks_written: int) -> Found:
        """Segments whose last row has been overwritten and that nobody ever drew."""
        lost: Found = []
        while (self._oldest + 1) * self._ticks <= ticks_written - self._replay_ticks:
            row = self._drawn[self._oldest % self._slots]
            if not row.all():
                lost.append((self._oldest, self._envs[~row].tolist()))
            row[:] = False
            self._oldest += 1
        return lost

    def _places(self, envs: np.ndarray) -> np.ndarray:
        return envs // self._stride if self._stride else np.zeros_like(envs)
