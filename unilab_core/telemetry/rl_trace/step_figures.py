"""One row per training step: what was consumed, and where the trainer waited.

A trajectory belongs to the step that trained it, else to the one that sampled it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from unilab_core.telemetry.rl_trace.flow_table import Floats, FlowTable, durations
from unilab_core.telemetry.rl_trace.progress_figures import StepRun

_MS_BITS = 42
"""Durations are below 2^42 ms (139 years)."""


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One training step; seconds unless said otherwise."""

    step: int
    trajs: int
    samples: int
    """Distinct prompts consumed."""
    prod_start_ms: int | None
    """Earliest entry into the buffer (Unix ms)."""
    prod_end_ms: int | None
    rollout_p50_s: float | None
    buffer_wait_p50_s: float | None
    batched_ms: int | None
    """First sampling (Unix ms)."""
    trained_ms: int | None
    """Last training event (Unix ms)."""
    rollout_s: float | None = None
    gap_s: float | None = None
    """From the end of the rollout to the start of the training."""
    train_s: float | None = None
    idle_s: float | None = None
    """Trainer idle before this step; above 0 it waits for data."""


def with_windows(rows: list[StepFigures], history: tuple[StepRun, ...]) -> tuple[StepFigures, ...]:
    """Rows of `consumed_by_step` with the windows of the progress lines, by step number."""
    runs = {run.step: run for run in history}
    known = {row.step for row in rows}
    empty = (None,) * 6
    added = [StepFigures(step, 0, 0, *empty) for step in runs if step not in known]
    result, before = [], None
    for row in sorted((*rows, *added), key=lambda row: row.step):
        before = _with_windows(row, runs, before)
        result.append(before)
    return tuple(result)


def trainer_idle_pct(rows: tuple[StepFigures, ...], history: tuple[StepRun, ...]) -> float | None:
    """Share of the time between first and last training in which the trainer waited."""
    idle = sum(max(row.idle_s, 0.0) for row in rows if row.idle_s is not None)
    starts = [run.train_ms[0] for run in history if run.train_ms[0] is not None]
    ends = [run.train_ms[1] for run in history if run.train_ms[1] is not None]
    if not starts or not ends:
        starts = [row.batched_ms for row in rows if row.batched_ms is not None]
        ends = [row.trained_ms for row in rows if row.trained_ms is not None]
    if not starts or not ends or max(ends) <= min(starts):
        return None
    return 100.0 * idle * 1000.0 / (max(ends) - min(starts))


def consumed_by_step(table: FlowTable) -> list[StepFigures]:
    """One row per step that consumed trajectories; windows are not filled in."""
    step = table.consumed_by()
    rows = np.flatnonzero(~np.isnan(step))
    if not len(rows):
        return []
    rows = rows[np.argsort(step[rows], kind="stable")]
    steps, starts = np.unique(step[rows], return_index=True)
    group = np.repeat(np.arange(len(steps)), np.diff([*starts.tolist(), len(rows)]))
    at = {name: table.at[name][rows] for name in ("buffered", "sampled", "trained")}
    rollout, _ = durations(table, table.at["run"], table.at["buffered"])
    waiting, _ = durations(table, table.at["buffered"], table.at["sampled"])
    pairs = np.unique(group * (int(table.uid.max()) + 1) + table.uid[rows])
    samples = np.bincount(pairs // (int(table.uid.max()) + 1), minlength=len(steps))
    low, high = np.fmin.reduceat, np.fmax.reduceat
    return [
        StepFigures(*row)
        for row in zip(
            steps.astype(int).tolist(),
            np.bincount(group, minlength=len(steps)).tolist(),
            samples.tolist(),
            _whole(low(at["buffered"], starts)),
            _whole(high(at["buffered"], starts)),
            _group_median_s(rollout[rows], group, len(steps)),
            _group_median_s(waiting[rows], group, len(steps)),
            _whole(low(at["sampled"], starts)),
            _whole(high(at["trained"], starts)),
            strict=True,
        )
    ]


def _with_windows(
    row: StepFigures, runs: Mapping[int, StepRun], before: StepFigures | None
) -> StepFigures:
    run = runs.get(row.step)
    previous = runs.get(before.step) if before is not None else None
    rollout = run.rollout_ms if run else (None, None)
    train = run.train_ms if run else (None, None)
    if run is not None and run.train_repeats:
        train_s = None
    else:
        train_s = _between(*train)
        if train_s is None:
            train_s = _between(row.batched_ms, row.trained_ms)
    idle_s = _between(previous.train_ms[1], train[0]) if previous is not None else None
    if idle_s is None and before is not None:
        idle_s = _between(before.trained_ms, row.batched_ms)
    return StepFigures(
        row.step,
        row.trajs,
        row.samples,
        row.prod_start_ms,
        row.prod_end_ms,
        row.rollout_p50_s,
        row.buffer_wait_p50_s,
        row.batched_ms,
        row.trained_ms,
        rollout_s=_between(*rollout),
        gap_s=_between(rollout[1], train[0]),
        train_s=train_s,
        idle_s=idle_s,
    )


def _between(start_ms: int | None, end_ms: int | None) -> float | None:
    return None if start_ms is None or end_ms is None else (end_ms - start_ms) / 1000.0


def _whole(values: Floats) -> list[int | None]:
    return [None if np.isnan(value) else int(value) for value in values.tolist()]


def _group_median_s(ms: Floats, group: np.ndarray, num_groups: int) -> list[float | None]:
    """Median of the values of each group, None for a group without any."""
    keep = ~np.isnan(ms)
    # Whole milliseconds below the group number: one plain sort orders both.
    keys = (group[keep].astype(np.int64) << _MS_BITS) + ms[keep].astype(np.int64)
    keys.sort()
    ms = (keys & ((1 << _MS_BITS) - 1)).astype(np.float64)
    counts = np.bincount(keys >> _MS_BITS, minlength=num_groups)
    starts = np.cumsum(counts) - counts
    result: list[float | None] = []
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        if not count:
            result.append(None)
            continue
        middle = (ms[start + (count - 1) // 2] + ms[start + count // 2]) / 2.0
        result.append(round(float(middle) / 1000.0, 6))
    return result
