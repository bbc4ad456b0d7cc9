"""Long courses and the rhythm of a source. No clock: every time is passed in (monotonic ns).

Course   evenly spaced means over an unlimited time in bounded memory (for sparklines)
Rhythm   the usual gap between records of one source, to tell a stall from slowness
"""

from math import isfinite


class Course:
    """Means of consecutive, equally long buckets. When the buckets run out, pairs are merged.

    Example with `capacity=4` and one value per bucket: 1 2 3 4 -> (next value 5) 1.5 3.5 5.
    """

    def __init__(self, *, bucket_ns: int, capacity: int) -> None:
        assert capacity % 2 == 0, "pairs of buckets are merged"
        self._bucket_ns = bucket_ns
        self._capacity = capacity
        self._buckets: list[tuple[float, int]] = []
        self._start_ns: int | None = None

    def add(self, t_ns: int, value: float | None) -> None:
        """Take one value in order of time; None and what is not finite are no news."""
        if value is None or not isfinite(value):
            return
        if self._start_ns is None or t_ns - self._start_ns >= self._bucket_ns:
            if len(self._buckets) == self._capacity:
                self._halve()
            self._buckets.append((value, 1))
            self._start_ns = t_ns
        else:
            total, count = self._buckets[-1]
            self._buckets[-1] = (total + value, count + 1)

    def values(self) -> tuple[float, ...]:
        """Bucket means, oldest first."""
        return tuple(total / count for total, count in self._buckets)

    def _halve(self) -> None:
        pairs = zip(self._buckets[::2], self._buckets[1::2], strict=True)
        self._buckets = [(a[0] + b[0], a[1] + b[1]) for a, b in pairs]
        self._bucket_ns *= 2


class Rhythm:
    """How often a source sends, as a slowly forgetting mean of the gaps between its records."""

    FORGET = 0.1

    def __init__(self, *, min_silence_s: float, gaps: float) -> None:
        """Silence is a stall after `gaps` usual gaps, but never before `min_silence_s`."""
        self._min_silence_ns = min_silence_s * 1e9
        self._gaps = gaps
        self._mean_gap_ns = 0.0
        self._last_ns: int | None = None

    def add(self, t_ns: int) -> None:
        """Note a record that was made at `t_ns`."""
        if self._last_ns is not None:
            gap_ns = max(t_ns - self._last_ns, 0)
            self._mean_gap_ns += self.FORGET * (gap_ns - self._mean_gap_ns)
            t_ns = max(t_ns, self._last_ns)
        self._last_ns = t_ns

    def age_s(self, now_ns: int) -> float | None:
        """Seconds since the newest record, never negative; None before the first."""
        return None if self._last_ns is None else max(now_ns - self._last_ns, 0) / 1e9

    def is_silent(self, now_ns: int) -> bool:
        """Whether the source has been quiet for longer than its rhythm explains."""
        if self._last_ns is None:
            return False
        limit_ns = max(self._min_silence_ns, self._gaps * self._mean_gap_ns)
        return now_ns - self._last_ns > limit_ns
