"""Rows folded into one record per trajectory, whatever their order.

Every fold is a minimum, a maximum, a sum over distinct rows, or a choice by (time, value), so the
state depends on the set of rows only. Times in the future are set aside: if they turn out to be
the majority, this machine's clock is what is wrong, and they count.

Legend: T trajectories, P prompts (uids), K milestone columns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unilab_core.telemetry.rl_trace.damage import Damage
from unilab_core.telemetry.rl_trace.flow_ids import (
    CLASS_COLUMNS,
    FlowIds,
    is_job_code,
    uid_code,
    uid_of_code,
)
from unilab_core.telemetry.rl_trace.flow_shards import Batch
from unilab_core.telemetry.rl_trace.hash_runs import HashRuns
from unilab_core.telemetry.rl_trace.stage_aliases import NUM_COLUMNS, Milestone, StageAliases

NEVER = np.iinfo(np.int64).max
OLDEST_MS = 978_307_200_000
"""2001-01-01: an earlier time is an outlier."""
FUTURE_MS = 20 * 3600 * 1000
"""Further ahead of this machine's clock than time zones explain."""
INDEX_BLOCK_ROWS = 1 << 20
MAX_STAGE_SPANS = 500_000

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of memory; what is beyond them is counted in `over_limit`."""

    trajectories: int = 6_000_000
    indexed_rows: int = 64_000_000
    """Rows whose place is remembered for the trace page, and that are checked for duplicates."""


class FlowStore:
    """All sample-flow state of one trace directory."""

    def __init__(
        self,
        aliases: StageAliases,
        limits: Limits | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.limits = limits or Limits()
        self.ids = FlowIds(aliases, self.limits.trajectories)
        self.batch = Batch()
        self.damage = Damage()
        self.num_rows = 0
        self.milestones = np.empty((0, NUM_COLUMNS), dtype=np.int64)
        """Earliest time of each milestone [T, K]; NEVER: not seen."""
        self.columns = _columns(0)
        self.uid_generated = np.empty(0, dtype=np.int64)
        self.uid_step = np.empty(0, dtype=np.int64)
        self.syncs: dict[int, set[tuple[int, int]]] = {}
        """Per job: (time, version) of weight synchronisations."""
        self.job_rows: dict[int, int] = {}
        self.job_span: dict[int, tuple[int, int]] = {}
        """Per job: earliest and latest time."""
        self.step_starts: dict[int, dict[int, int]] = {}
        """Per job: step to the time of its first event."""
        self.stage_rows: dict[int, int] = {}
        self.stage_spans: dict[tuple[int, int], tuple[int, int]] = {}
        """(trajectory, stage without alias) to first and last time."""
        self._seen = HashRuns()
        self._index: list[tuple[NDArray[np.int32], Ints]] = []
        self._index_used = INDEX_BLOCK_ROWS
        self._future: list[_Rows] = []
        self._touched: list[NDArray[np.int32]] = []
        self._prompts: set[int] = set()
        self._now_ms = now_ms

    @property
    def num_trajectories(self) -> int:
        """Trajectories with a row of their own, of all jobs."""
        return len(self.ids.trajectory_uids)

    def flush(self) -> None:
        """Fold the parsed rows."""
        batch = self.batch
        batch.resolve(self.ids)
        if not batch.num_rows:
            return
        self._grow()
        rows = _take(batch, self.ids)
        self.ids.trim_contents()
        fresh = self._fresh(rows)
        self.damage.duplicate += len(fresh) - int(fresh.sum())
        rows = rows.where(fresh)
        self.num_rows += len(rows.code)
        self._remember(rows.code, rows.location)
        self.damage.unknown_stage += int((rows.known == 0).sum())
        self.damage.nan += int(rows.bad_value.sum())
        future = rows.unix_ms > self._now_ms() + FUTURE_MS
        old = rows.unix_ms < OLDEST_MS
        if future.any():
            self._future.append(rows.where(future))
        self.damage.outlier += int(future.sum() + old.sum())
        self._fold(rows.where(~(future | old)))

    def take_touched(self) -> tuple[Ints, Ints]:
        """Trajectories and prompts that have changed since the last call."""
        touched = self._touched
        own = np.unique(np.concatenate(touched)) if touched else np.empty(0, dtype=np.int32)
        prompts = np.array(sorted(self._prompts), dtype=np.int64)
        self._touched, self._prompts = [], set()
        return own.astype(np.int64), prompts

    def settle(self) -> None:
        """Decide about times in the future, once everything on disk has been read."""
        num_future = sum(len(rows.code) for rows in self._future)
        if num_future * 2 > self.num_rows:
            for rows in self._future:
                self._fold(rows)
            self.damage.outlier -= num_future
            self._future.clear()

    def locations(self, code: int) -> list[int]:
        """Where the rows of a code are, in order of location."""
        found = [place[rows == code] for rows, place in self._index]
        return sorted(np.concatenate(found).tolist()) if found else []

    def has_row(self) -> NDArray[np.bool_]:
        """Which trajectories have a row with a usable time [T]."""
        return self.columns["last_ms"][: self.num_trajectories] > -NEVER

    def _fresh(self, rows: _Rows) -> NDArray[np.bool_]:
        if len(self._seen) >= self.limits.indexed_rows:
            return np.ones(len(rows.code), dtype=bool)
        return self._seen.add(rows.identity)

    def _remember(self, code: NDArray[np.int32], location: Ints) -> None:
        taken = 0
        while taken < len(code):
            if self._index_used == INDEX_BLOCK_ROWS:
                if len(self._index) * INDEX_BLOCK_ROWS >= self.limits.indexed_rows:
                    self.damage.over_limit += len(code) - taken
                    return
                # Code -2^31 is no subject: unused places never match.
                empty = np.full(INDEX_BLOCK_ROWS, -(2**31), dtype=np.int32)
                self._index.append((empty, np.zeros(INDEX_BLOCK_ROWS, dtype=np.int64)))
                self._index_used = 0
            part = slice(taken, taken + INDEX_BLOCK_ROWS - self._index_used)
            size = len(code[part])
            into = slice(self._index_used, self._index_used + size)
            self._index[-1][0][into] = code[part]
            self._index[-1][1][into] = location[part]
            self._index_used += size
            taken += size

    def _fold(self, rows: _Rows) -> None:
        if not len(rows.code):
            return
        own = rows.code >= 0
        self._fold_trajectories(rows.where(own))
        rest = rows.where(~own)
        self._fold_shared(rest)
        self._fold_jobs(rows)
        self._fold_stages(rows)

    def _fold_trajectories(self, rows: _Rows) -> None:
        code, unix_ms, columns = rows.code, rows.unix_ms, self.columns
        self._touched.append(np.unique(code))
        np.maximum.at(columns["last_ms"], code, unix_ms)
        np.minimum.at(columns["first_ms"], code, unix_ms)
        milestone = rows.milestone.copy()
        complete = (milestone == Milestone.TRAINED_IF_COMPLETE) & (rows.status & 1 > 0)
        milestone[complete] = Milestone.TRAINED
        both = milestone == Milestone.GENERATION
        milestone[both] = Milestone.GENERATION_START
        flat = self.milestones.reshape(-1)
        for kind in (milestone, rows.inferred):
            at = kind < NUM_COLUMNS
            np.minimum.at(flat, code[at].astype(np.int64) * NUM_COLUMNS + kind[at], unix_ms[at])
        ends = milestone == Milestone.GENERATION_END
        np.add.at(columns["num_turns"], code[ends], 1)
        np.maximum.at(columns["generation_end"], code[ends | both], unix_ms[ends | both])
        marked = rows.status > 0
        np.bitwise_or.at(columns["flags"], code[marked], rows.status[marked])
        stepped = rows.step >= 0
        np.minimum.at(columns["step"], code[stepped], rows.step[stepped])
        for name, kind in (
            ("sampled_step", Milestone.SAMPLED),
            ("trained_step", Milestone.TRAINED),
        ):
            at = stepped & (milestone == kind)
            np.minimum.at(columns[name], code[at], rows.step[at])
        scored = (milestone == Milestone.REWARD) & np.isfinite(rows.value)
        self._fold_scores(code[scored], unix_ms[scored], rows.value[scored])

    def _fold_scores(
        self, code: NDArray[np.int32], unix_ms: Ints, value: NDArray[np.float64]
    ) -> None:
        """The score with the largest (time, value) of each trajectory."""
        order = np.lexsort((value, unix_ms, code))
        code, unix_ms, value = code[order], unix_ms[order], value[order]
        last = np.ones(len(code), dtype=bool)
        last[:-1] = code[1:] != code[:-1]
        code, unix_ms, value = code[last], unix_ms[last], value[last]
        known_ms, known = self.columns["score_ms"], self.columns["score"]
        newer = unix_ms > known_ms[code]
        newer |= (unix_ms == known_ms[code]) & ~(value <= known[code])
        known_ms[code[newer]] = unix_ms[newer]
        known[code[newer]] = value[newer]

    def _fold_shared(self, rows: _Rows) -> None:
        for code, unix_ms, milestone, step, value in zip(
            rows.code.tolist(),
            rows.unix_ms.tolist(),
            rows.milestone.tolist(),
            rows.step.tolist(),
            rows.value.tolist(),
            strict=True,
        ):
            if is_job_code(code):
                if milestone == Milestone.SYNC:
                    job = int(self.job_of(np.array([code]))[0])
                    self.syncs.setdefault(job, set()).add((unix_ms, int(value)))
                continue
            uid = uid_of_code(code)
            if milestone == Milestone.GENERATED:
                self._prompts.add(uid)
                self.uid_generated[uid] = min(self.uid_generated[uid], unix_ms)
            if step >= 0:
                self.uid_step[uid] = min(self.uid_step[uid], step)

    def _fold_jobs(self, rows: _Rows) -> None:
        jobs = self.job_of(rows.code)
        for job in np.unique(jobs).tolist():
            at = jobs == job
            unix_ms = rows.unix_ms[at]
            low, high = self.job_span.get(job, (NEVER, -NEVER))
            self.job_span[job] = (min(low, int(unix_ms.min())), max(high, int(unix_ms.max())))
            self.job_rows[job] = self.job_rows.get(job, 0) + int(at.sum())
            starts = self.step_starts.setdefault(job, {})
            at &= rows.step >= 0
            for step, first in zip(*_group_minimum(rows.step[at], rows.unix_ms[at]), strict=True):
                starts[step] = min(starts.get(step, NEVER), first)

    def _fold_stages(self, rows: _Rows) -> None:
        stages, counts = np.unique(rows.stage, return_counts=True)
        for stage, count in zip(stages.tolist(), counts.tolist(), strict=True):
            self.stage_rows[stage] = self.stage_rows.get(stage, 0) + count
            if self.ids.known_stages[stage]:
                continue
            at = (rows.stage == stage) & (rows.code >= 0)
            for code, unix_ms in zip(
                rows.code[at].tolist(), rows.unix_ms[at].tolist(), strict=True
            ):
                known = self.stage_spans.get((code, stage))
                if known is None:
                    if len(self.stage_spans) >= MAX_STAGE_SPANS:
                        continue
                    known = (unix_ms, unix_ms)
                span = (min(known[0], unix_ms), max(known[1], unix_ms))
                self.stage_spans[code, stage] = span

    def job_of(self, code: NDArray[np.int32]) -> Ints:
        """Job number of each code."""
        uids = np.array(self.ids.trajectory_uids, dtype=np.int32)
        uid_jobs = np.array(self.ids.uid_jobs, dtype=np.int32)
        result = -(2**30) - code.astype(np.int64)
        own, prompt = code >= 0, (code < -1) & (code > -(2**30))
        result[own] = uid_jobs[uids[code[own]]]
        result[prompt] = uid_jobs[-2 - code[prompt]]
        return result

    def uid_rows(self, uid: int) -> list[int]:
        """Places of the rows about all trajectories of a prompt."""
        return self.locations(uid_code(uid))

    def _grow(self) -> None:
        need = self.num_trajectories
        if need > len(self.milestones):
            size = max(need, 1024, int(len(self.milestones) * 1.6))
            grown = np.full((size, NUM_COLUMNS), NEVER, dtype=np.int64)
            grown[: len(self.milestones)] = self.milestones
            self.milestones = grown
            for name, column in _columns(size).items():
                column[: len(self.columns[name])] = self.columns[name]
                self.columns[name] = column
        if len(self.ids.uid_names) > len(self.uid_generated):
            size = max(len(self.ids.uid_names), 1024, int(len(self.uid_generated) * 1.6))
            for name in ("uid_generated", "uid_step"):
                old = getattr(self, name)
                column = np.full(size, NEVER, dtype=np.int64)
                column[: len(old)] = old
                setattr(self, name, column)


@dataclass(slots=True)
class _Rows:
    """A batch as arrays, contents resolved."""

    code: NDArray[np.int32]
    unix_ms: Ints
    status: NDArray[np.int8]
    identity: Ints
    location: Ints
    milestone: Ints
    inferred: Ints
    stage: Ints
    step: Ints
    known: Ints
    value: NDArray[np.float64]
    bad_value: NDArray[np.int8]

    def where(self, mask: NDArray[np.bool_]) -> _Rows:
        """The rows of a mask."""
        return _Rows(*(getattr(self, name)[mask] for name in self.__slots__))


def _take(batch: Batch, ids: FlowIds) -> _Rows:
    """Arrays of a batch, which is empty afterwards."""
    table = ids.contents
    content = np.concatenate(batch.content)
    classes = np.array(table.event_class, dtype=np.int64)[content]
    columns = np.array(table.class_columns, dtype=np.int64).reshape(-1, len(CLASS_COLUMNS))
    of_class = columns[classes]
    rows = _Rows(
        np.concatenate(batch.code).astype(np.int32),
        np.concatenate(batch.unix_ms),
        np.concatenate(batch.status),
        np.concatenate(batch.identity),
        np.concatenate(batch.location),
        of_class[:, 0],
        of_class[:, 1],
        of_class[:, 2],
        of_class[:, 3],
        of_class[:, 4],
        np.array(table.value, dtype=np.float64)[content],
        np.array(table.bad_value, dtype=np.int8)[content],
    )
    for pieces in (
        batch.code,
        batch.unix_ms,
        batch.content,
        batch.status,
        batch.identity,
        batch.location,
    ):
        pieces.clear()
    batch.num_rows = 0
    return rows


def _group_minimum(keys: Ints, values: Ints) -> tuple[list[int], list[int]]:
    """Distinct keys and the smallest value of each."""
    order = np.lexsort((values, keys))
    keys, values = keys[order], values[order]
    first = np.ones(len(keys), dtype=bool)
    first[1:] = keys[1:] != keys[:-1]
    return keys[first].tolist(), values[first].tolist()


def _columns(size: int) -> dict[str, NDArray]:
    """Per-trajectory columns [T] with their neutral elements."""
    return {
        "last_ms": np.full(size, -NEVER, dtype=np.int64),
        "first_ms": np.full(size, NEVER, dtype=np.int64),
        "generation_end": np.full(size, -NEVER, dtype=np.int64),
        "num_turns": np.zeros(size, dtype=np.int32),
        "flags": np.zeros(size, dtype=np.int8),
        "step": np.full(size, NEVER, dtype=np.int64),
        "sampled_step": np.full(size, NEVER, dtype=np.int64),
        "trained_step": np.full(size, NEVER, dtype=np.int64),
        "score": np.full(size, np.nan, dtype=np.float64),
        "score_ms": np.full(size, -NEVER, dtype=np.int64),
    }
