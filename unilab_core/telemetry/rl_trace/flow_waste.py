"""What generation was worth: loss of what is still in flight, and staleness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from unilab_core.telemetry.rl_trace.flow_parts import FlowPart, joined
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
    step = joined([part.trained_at[2] for part in parts])
    rows = ~np.isnan(step)
    step = step[rows]
    start, end, _, own = (
        joined([part.trained_at[place] for part in parts])[rows] for place in range(4)
    )
    syncs = sorted(store.syncs.get(job, ()))
    if not syncs:
        return Staleness("step", _histogram(step - own))
    times = np.array([one[0] for one in syncs], dtype=np.float64)
    versions = np.concatenate(([0], np.maximum.accumulate([one[1] for one in syncs])))

    def version_at(when: Floats) -> Floats:
        found = versions[np.searchsorted(times, when, side="right")].astype(np.float64)
        found[np.isnan(when)] = np.nan
        return found

    first, last = version_at(start), version_at(end)
    return Staleness(
        "version",
        _histogram(step - 1 - last),
        _histogram(step - 1 - first),
        _histogram(last - first + 1),
    )


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
