"""The trajectories of one job as columns of times in float ms, NaN where nothing was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unilab_core.telemetry.rl_trace.flow_ids import STATUS_BITS
from unilab_core.telemetry.rl_trace.flow_store import NEVER, FlowStore
from unilab_core.telemetry.rl_trace.stage_aliases import Milestone

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

NEGATIVE_TOLERANCE_MS = 50.0

_COLUMNS = {
    "dispatched": Milestone.DISPATCHED,
    "run": Milestone.RUN,
    "generation_start": Milestone.GENERATION_START,
    "finished": Milestone.FINISHED,
    "reward": Milestone.REWARD,
    "sampled": Milestone.SAMPLED,
    "logprob": Milestone.LOGPROB,
    "ref_logprob": Milestone.REF_LOGPROB,
    "advantage": Milestone.ADVANTAGE,
    "trained": Milestone.TRAINED,
}


@dataclass(slots=True)
class FlowTable:
    """Columns [T] of the trajectories of one job."""

    index: NDArray[np.int64]
    """Trajectory number in the store."""
    uid: NDArray[np.int64]
    at: dict[str, Floats]
    """Milestone to time; also `generated`, `generation_end`, `buffered`, `first`, `last`."""
    num_turns: NDArray[np.int32]
    flags: NDArray[np.int8]
    step: Floats
    """Smallest step of any row."""
    sampled_step: Floats
    trained_step: Floats
    name_of: Callable[[int], str]
    """Store's trajectory number to `<uid>/<n>`."""

    def __len__(self) -> int:
        return len(self.index)

    def name(self, row: int) -> str:
        """`<uid>/<n>` of a row of this table."""
        return self.name_of(int(self.index[row]))

    def has(self, *milestones: str) -> Mask:
        """Rows that have one of the milestones."""
        result = np.zeros(len(self), dtype=bool)
        for milestone in milestones:
            result |= ~np.isnan(self.at[milestone])
        return result

    def status(self, name: str) -> Mask:
        """Rows that ended with a status, unless they were trained."""
        return (self.flags & STATUS_BITS[name.encode()] > 0) & np.isnan(self.at["trained"])

    def of_step(self, step: int) -> FlowTable:
        """The trajectories that a training step consumed, or that belong to it in flight."""
        return self.take(self._own_step() == step)

    def take(self, mask: Mask) -> FlowTable:
        """The rows of a mask."""
        rows = np.flatnonzero(mask)
        return FlowTable(
            index=self.index[rows],
            uid=self.uid[rows],
            at={name: times[rows] for name, times in self.at.items()},
            num_turns=self.num_turns[rows],
            flags=self.flags[rows],
            step=self.step[rows],
            sampled_step=self.sampled_step[rows],
            trained_step=self.trained_step[rows],
            name_of=self.name_of,
        )

    def own_steps(self) -> NDArray[np.int64]:
        """Steps for which `of_step` finds rows."""
        own = self._own_step()
        return np.unique(own[~np.isnan(own)]).astype(np.int64)

    def consumed_by(self) -> Floats:
        """The step that trained each row, else the one that sampled it [T]; NaN: none yet."""
        return np.where(np.isnan(self.trained_step), self.sampled_step, self.trained_step)

    def _own_step(self) -> Floats:
        of = self.consumed_by()
        return np.where(np.isnan(of), self.step, of)

    @property
    def lost(self) -> Mask:
        """Rows that ended without being trained."""
        return self.status("FAILED") | self.status("DISCARDED") | self.status("CANCELLED")

    @property
    def in_flight(self) -> Mask:
        """Rows without an end."""
        return np.isnan(self.at["trained"]) & ~self.lost


def flow_table(store: FlowStore, job: int, first: int = 0, last: int | None = None) -> FlowTable:
    """The trajectories of `job` with numbers from `first` to before `last`; the store flushed."""
    uids = np.array(store.ids.trajectory_uids[first:last], dtype=np.int64)
    uid_jobs = np.array(store.ids.uid_jobs, dtype=np.int64)
    index = np.flatnonzero(uid_jobs[uids] == job) if len(uids) else np.empty(0, dtype=np.int64)
    uid = uids[index]
    index += first
    milestones, columns = store.milestones, store.columns
    at = {name: _times(milestones[index, kind]) for name, kind in _COLUMNS.items()}
    for name, kind in (
        ("dispatched", Milestone.DISPATCHED_INFERRED),
        ("run", Milestone.RUN_INFERRED),
    ):
        inferred = _times(milestones[index, kind])
        at[name] = np.where(np.isnan(at[name]), inferred, at[name])
    at["generated"] = _times(store.uid_generated[uid])
    at["first"] = _times(columns["first_ms"][index])
    at["last"] = _times(columns["last_ms"][index])
    at["any_generation_end"] = _times(columns["generation_end"][index])
    table = FlowTable(
        index=index,
        uid=uid,
        at=at,
        num_turns=columns["num_turns"][index],
        flags=columns["flags"][index],
        step=_times(columns["step"][index]),
        sampled_step=_times(columns["sampled_step"][index]),
        trained_step=_times(columns["trained_step"][index]),
        name_of=store.ids.trajectory_name,
    )
    # The last generation is known to be the last only after the trajectory has left it.
    later = ("finished", "reward", "sampled", "logprob", "ref_logprob", "advantage", "trained")
    left = table.has(*later) | (table.flags > 0)
    at["generation_end"] = np.where(left, at["any_generation_end"], np.nan)
    at["buffered"] = np.fmax(at["finished"], at["reward"])
    return table


def joined_tables(tables: Sequence[FlowTable]) -> FlowTable:
    """The rows of several tables of one store, at least one."""
    names = tables[0].at.keys()
    return FlowTable(
        index=np.concatenate([table.index for table in tables]),
        uid=np.concatenate([table.uid for table in tables]),
        at={name: np.concatenate([table.at[name] for table in tables]) for name in names},
        num_turns=np.concatenate([table.num_turns for table in tables]),
        flags=np.concatenate([table.flags for table in tables]),
        step=np.concatenate([table.step for table in tables]),
        sampled_step=np.concatenate([table.sampled_step for table in tables]),
        trained_step=np.concatenate([table.trained_step for table in tables]),
        name_of=tables[0].name_of,
    )


def durations(table: FlowTable, start: Floats, end: Floats) -> tuple[Floats, int]:
    """Milliseconds [T], NaN where an end is missing or negative, and how many were negative.

    Up to 50 ms below zero is the noise of clocks and counts as 0; more is left out, not clamped.
    """
    lengths = end - start
    with np.errstate(invalid="ignore"):
        negative = lengths < -NEGATIVE_TOLERANCE_MS
    lengths[negative] = np.nan
    return np.maximum(lengths, 0.0), int(negative.sum())


def seconds(ms: float) -> float:
    """Seconds from milliseconds, rounded to the microsecond."""
    return round(float(ms) / 1000.0, 6)


def _times(values: NDArray[np.int64]) -> Floats:
    times = values.astype(np.float64)
    times[(values == NEVER) | (values == -NEVER)] = np.nan
    return times
