"""What generation was worth: waste, loss, staleness, idle time of the rollout side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from unilab_core.telemetry.rl_trace.flow_store import FlowStore
from unilab_core.telemetry.rl_trace.flow_table import Floats, FlowTable, Mask, durations, seconds


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


def lost_rows(table: FlowTable, settings: FlowSettings) -> Mask:
    """Trajectories whose work was for nothing, as far as is known [T]."""
    lost = table.lost
    if settings.ended:
        lost = lost | table.in_flight
    steps = table.trained_step[~np.isnan(table.trained_step)]
    if settings.max_staleness is not None and len(steps):
        with np.errstate(invalid="ignore"):
            lost = lost | (table.in_flight & (steps.max() - table.step > settings.max_staleness))
    return lost


def active_s(table: FlowTable, rows: Mask) -> float | None:
    """Seconds from agent start to the buffer (or the last event), summed; None: none known."""
    end = np.where(np.isnan(table.at["buffered"]), table.at["last"], table.at["buffered"])
    lengths, _ = durations(table, table.at["run"], end)
    known = lengths[rows & ~np.isnan(lengths)]
    return seconds(known.sum()) if len(known) else None


def staleness(store: FlowStore, job: int, table: FlowTable) -> Staleness:
    """Lags of the trained trajectories: versions between generation and training."""
    rows = ~np.isnan(table.trained_step)
    step = table.trained_step[rows]
    syncs = sorted(store.syncs.get(job, ()))
    if not syncs:
        return Staleness("step", _histogram(step - table.step[rows]))
    times = np.array([one[0] for one in syncs], dtype=np.float64)
    versions = np.concatenate(([0], np.maximum.accumulate([one[1] for one in syncs])))

    def version_at(when: Floats) -> Floats:
        found = versions[np.searchsorted(times, when, side="right")].astype(np.float64)
        found[np.isnan(when)] = np.nan
        return found

    first = version_at(table.at["generation_start"][rows])
    last = version_at(table.at["generation_end"][rows])
    return Staleness(
        "version",
        _histogram(step - 1 - last),
        _histogram(step - 1 - first),
        _histogram(last - first + 1),
    )


def _histogram(values: Floats) -> dict[int, int]:
    present, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    return dict(zip(present.astype(int).tolist(), counts.tolist(), strict=True))


def rollout_idle_s(table: FlowTable, now_ms: int) -> float | None:
    """Seconds with no trajectory between agent start and rollout end, over all gaps."""
    start = table.at["run"]
    end = np.fmax(table.at["finished"], table.at["buffered"])
    end = np.where(np.isnan(end) & table.in_flight, now_ms, end)
    keep = ~np.isnan(start) & ~np.isnan(end)
    if not keep.any():
        return None
    order = np.argsort(start[keep], kind="stable")
    start, end = start[keep][order], np.maximum.accumulate(end[keep][order])
    return seconds(np.maximum(start[1:] - end[:-1], 0.0).sum())
