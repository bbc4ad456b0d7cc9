"""What generation was worth: loss of what is still in flight, and staleness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unilab_core.telemetry.rl_trace.flow_parts import FlowPart, Lags, joined
from unilab_core.telemetry.rl_trace.flow_store import FlowStore
from unilab_core.telemetry.rl_trace.flow_table import Floats


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """What the figures depend on beside the rows."""

    now_ms: int
    ended: bool = False
    group_sizes: Mapping[int, int] = field(default_factory=dict)
    """Prompt number to trajectories per prompt, where known."""
    max_staleness: int | None = None
    num_stuck: int = 200


@dataclass(frozen=True, slots=True)
class Staleness:
    """How many weight versions or steps lay between generation and training."""

    kind: str
    """`version` from synchronisation rows, else `step`."""
    lag: Mapping[int, int] = field(default_factory=dict)
    lag_worst: Mapping[int, int] = field(default_factory=dict)
    span: Mapping[int, int] = field(default_factory=dict)


NO_SYNCS = -1


@dataclass(frozen=True, slots=True)
class LostFlight:
    """Trajectories in flight that will not be trained any more, as far as is known."""

    count: int
    active: tuple[float, int]
    """Milliseconds of work, and of how many of them."""


def lost_flight(parts: Sequence[FlowPart], settings: FlowSettings) -> LostFlight:
    """In flight when the job ended, or older by too many steps."""
    steps = joined([part.trained_at[2] for part in parts])
    steps = steps[~np.isnan(steps)]
    limit = settings.max_staleness
    count, total_ms, known = 0, 0.0, 0
    for part in parts:
        flight = part.flight
        if settings.ended:
            lost = np.ones(len(flight.step), dtype=bool)
        elif limit is not None and len(steps):
            with np.errstate(invalid="ignore"):
                lost = steps.max() - flight.step > limit
        else:
            continue
        active = flight.active_ms[lost]
        active = active[~np.isnan(active)]
        count += int(lost.sum())
        total_ms += float(active.sum())
        known += len(active)
    return LostFlight(count, (total_ms, known))


def staleness(store: FlowStore, job: int, parts: Sequence[FlowPart]) -> Staleness:
    """Lags of the trained trajectories: versions between generation and training."""
    syncs = sorted(store.syncs.get(job, ()))
    times = np.array([one[0] for one in syncs], dtype=np.float64)
    versions = np.concatenate(([0], np.maximum.accumulate([one[1] for one in syncs], dtype=int)))
    sums: tuple[dict[int, int], ...] = ({}, {}, {})
    for part in parts:
        for total, counts in zip(sums, _lags(part, times, versions).counts, strict=True):
            for lag, count in counts.items():
                total[lag] = total.get(lag, 0) + count
    lag, worst, span = (dict(sorted(total.items())) for total in sums)
    return Staleness("version" if syncs else "step", lag, worst, span)


def _lags(part: FlowPart, times: Floats, versions: NDArray[np.int64]) -> Lags:
    """Lags of a part; kept until there is a synchronisation that its trajectories may have seen."""
    start, end, step, own = part.trained_at
    kept = part.lags
    latest = _latest(start, end) if kept is None else kept.latest_ms
    # Synchronisations are only ever added: their number up to a time says which ones they are.
    num_syncs = int(np.searchsorted(times, latest, side="right")) if len(times) else NO_SYNCS
    if kept is not None and kept.num_syncs == num_syncs:
        return kept
    rows = ~np.isnan(step)
    start, end, step, own = start[rows], end[rows], step[rows], own[rows]
    if num_syncs == NO_SYNCS:
        counts = (_histogram(step - own), {}, {})
    else:
        first, last = _version_at(start, times, versions), _version_at(end, times, versions)
        lags = (step - 1 - last, step - 1 - first, last - first + 1)
        counts = (_histogram(lags[0]), _histogram(lags[1]), _histogram(lags[2]))
    part.lags = Lags(num_syncs, latest, counts)
    return part.lags


def _latest(start: Floats, end: Floats) -> float:
    times = np.concatenate((start, end))
    return float(times[~np.isnan(times)].max(initial=-np.inf))


def _version_at(when: Floats, times: Floats, versions: NDArray[np.int64]) -> Floats:
    found = versions[np.searchsorted(times, when, side="right")].astype(np.float64)
    found[np.isnan(when)] = np.nan
    return found


def _histogram(values: Floats) -> dict[int, int]:
    whole = values[~np.isnan(values)].astype(np.int64)
    if not len(whole):
        return {}
    low, high = int(whole.min()), int(whole.max())
    if high - low > 1_000_000:  # steps of two runs in one directory: too wide to count in place
        present, counts = np.unique(whole, return_counts=True)
        return dict(zip(present.tolist(), counts.tolist(), strict=True))
    counts = np.bincount(whole - low)
    present = np.flatnonzero(counts)
    return dict(zip((present + low).tolist(), counts[present].tolist(), strict=True))
