"""Figures over time: the two-second window, the reward history, the tail throughput.

Pure folds without a clock of their own: the caller passes monotonic nanoseconds.
"""

from collections import deque
from collections.abc import Mapping
from math import isnan
from typing import Literal

from unilab_core.telemetry.records import CollectorReport, IterationReport

WINDOW_SECONDS = 2.0
MAX_SAMPLES = 512

Trend = Literal["up", "down", "flat"]


class SampleWindow:
    """Samples of the last two seconds; every figure is the mean over the samples that have it.

    Old samples leave when a new one arrives, measured from the newest sample: a source that
    stands still keeps its last window on screen, and its age says that it is old.
    """

    def __init__(self, seconds: float = WINDOW_SECONDS, max_samples: int = MAX_SAMPLES) -> None:
        self._span_ns = round(seconds * 1e9)
        self._samples: deque[tuple[int, tuple[str, ...], tuple[float, ...]]] = deque(
            maxlen=max_samples
        )

    @property
    def count(self) -> int:
        """Samples in the window: the n of "Avg 2s (n=k)"."""
        return len(self._samples)

    @property
    def newest_ns(self) -> int | None:
        """Time of the newest sample, None before the first."""
        return self._samples[-1][0] if self._samples else None

    def add(self, t_ns: int, values: Mapping[str, float]) -> None:
        """Take a sample and drop those more than the window's length older than it."""
        samples = self._samples
        samples.append((t_ns, tuple(values), tuple(values.values())))
        while samples[0][0] < t_ns - self._span_ns:
            samples.popleft()

    def age_s(self, now_ns: int) -> float | None:
        """Seconds since the newest sample, never negative; None before the first."""
        newest_ns = self.newest_ns
        return None if newest_ns is None else max(now_ns - newest_ns, 0) / 1e9

    def means(self) -> dict[str, float]:
        """Arithmetic mean per key over the samples that have the key."""
        # Samples of a source nearly always have the same keys: their columns are summed at once.
        tables: dict[tuple[str, ...], list[tuple[float, ...]]] = {}
        for _, keys, row in self._samples:
            tables.setdefault(keys, []).append(row)
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for keys, rows in tables.items():
            for key, column in zip(keys, zip(*rows, strict=True), strict=True):
                sums[key] = sums.get(key, 0.0) + sum(column)
                counts[key] = counts.get(key, 0) + len(rows)
        return {key: total / counts[key] for key, total in sums.items()}

    def clear(self) -> None:
        """Forget everything (the source was replaced)."""
        self._samples.clear()


def iteration_sample(report: IterationReport) -> dict[str, float]:
    """One iteration as window keys: canonical tags, plus the derived figures by field name.

    Keys: the learner's timing tags and metrics, `reward/<term>`, `Episode_Termination/<term>`,
    Perf/iteration_time, and `wall_ms accounted_ms other_ms reward_mean episode_length
    timeout_rate steps_per_s rows_per_s buffer`. `wall_ms` falls back to the accounted time.
    """
    values: dict[str, float | None] = {
        "wall_ms": report.accounted_ms if report.wall_ms is None else report.wall_ms,
        "accounted_ms": report.accounted_ms,
        "other_ms": report.other_ms,
        "reward_mean": report.reward_mean,
        "episode_length": report.episode_length,
        "timeout_rate": report.timeout_rate,
        "steps_per_s": report.steps_per_s,
        "rows_per_s": report.rows_per_s,
        "buffer": report.buffer,
    }
    if report.wall_ms is not None:
        values["Perf/iteration_time"] = report.wall_ms / 1000.0
    known = {key: value for key, value in values.items() if value is not None}
    return {
        **report.learner,
        **report.metrics,
        **report.rewards,
        **report.terminations,
        **known,
    }


def collector_sample(report: CollectorReport) -> dict[str, float]:
    """One collector report as window keys.

    Keys: timing and inference tags, `reward/<term>`, `cycle_ms`, `wall_ms`, `other_ms`
    (wall - cycle, at least 0), `mean_return`, `mean_length`.
    """
    values: dict[str, float | None] = {
        "cycle_ms": report.cycle_ms,
        "wall_ms": report.wall_ms,
        "mean_return": report.mean_return,
        "mean_length": report.mean_length,
    }
    if report.cycle_ms is not None and report.wall_ms is not None:
        values["other_ms"] = max(report.wall_ms - report.cycle_ms, 0.0)
    known = {key: value for key, value in values.items() if value is not None}
    return {**report.timing, **report.inference, **report.rewards, **known}


class RewardHistory:
    """Mean rewards of the last 200 reports: peak, and the trend of the last ten.

    The trend compares the mean of the last ten reports with that of the up to ten before them;
    a change of at most 5 % of the earlier mean's size is flat. With exactly ten there is nothing
    to compare with, which is flat as well; below ten there is no trend.
    """

    SIZE = 200
    SPAN = 10
    FLAT_FRACTION = 0.05

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=self.SIZE)

    def add(self, mean_reward: float | None) -> None:
        """Take the mean reward of one report; None and NaN are no news."""
        if mean_reward is not None and not isnan(mean_reward):
            self._values.append(mean_reward)

    @property
    def values(self) -> tuple[float, ...]:
        """The history, oldest first."""
        return tuple(self._values)

    @property
    def peak(self) -> float | None:
        """Largest mean reward of the history."""
        return max(self._values, default=None)

    @property
    def trend(self) -> Trend | None:
        """Direction of the last ten reports against the ten before."""
        if len(self._values) < self.SPAN:
            return None
        values = list(self._values)
        recent, earlier = values[-self.SPAN :], values[-2 * self.SPAN : -self.SPAN]
        if not earlier:
            return "flat"
        before = sum(earlier) / len(earlier)
        change = sum(recent) / len(recent) - before
        if abs(change) <= self.FLAT_FRACTION * abs(before):
            return "flat"
        return "up" if change > 0 else "down"


class TailThroughput:
    """Throughput of the last iterations from (steps, seconds) pairs: long ones weigh more."""

    def __init__(self, window_iterations: int = 100) -> None:
        self.window_iterations = window_iterations
        self._pairs: deque[tuple[int, float]] = deque(maxlen=window_iterations)

    @property
    def count(self) -> int:
        """Iterations in the window."""
        return len(self._pairs)

    def add(self, steps: int, seconds: float) -> None:
        """Take one iteration."""
        self._pairs.append((steps, seconds))

    @property
    def steps_per_s(self) -> float | None:
        """All steps over all seconds; None before any time has passed."""
        seconds = sum(pair[1] for pair in self._pairs)
        return sum(pair[0] for pair in self._pairs) / seconds if seconds > 0.0 else None
