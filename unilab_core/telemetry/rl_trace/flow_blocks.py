"""Figures that cost as much as what changed: contributions of blocks, kept until touched.

A block is a run of trajectory numbers. The store notes which trajectories rows were folded into and
which prompts changed; a block with any of those, or with new trajectories, is computed again. Steps
are kept the same way: those that consumed a trajectory with new rows, now or before, are made anew
from every block that has any of their trajectories.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unilab_core.telemetry.rl_trace.flow_figures import FlowFigures, combined_figures
from unilab_core.telemetry.rl_trace.flow_lengths import SettledLengths
from unilab_core.telemetry.rl_trace.flow_parts import TRANSITIONS, FlowPart, part_of
from unilab_core.telemetry.rl_trace.flow_store import FlowStore
from unilab_core.telemetry.rl_trace.flow_table import FlowTable, flow_table, joined_tables
from unilab_core.telemetry.rl_trace.flow_waste import FlowSettings
from unilab_core.telemetry.rl_trace.step_figures import StepFigures, consumed_by_step

BLOCK_ROWS = 1 << 12
NO_STEP = -1
SETTLE_UPDATES = 4
"""A full block that stayed the same for so many figures has come to rest."""
MAX_KEPT_TABLES = 8
"""Tables of an update are kept for the figures after it unless there are more."""
MANY_STIRRED = 3
"""So many blocks at rest are not taken out one by one: all begin anew."""


@dataclass(slots=True)
class _Block:
    size: int
    """Trajectories of all jobs in it."""
    part: FlowPart | None
    """None until figures need it."""
    consumed_by: NDArray[np.int64]
    """Step that consumed each trajectory; NO_STEP: none, or not of the job."""
    steps: NDArray[np.int64]
    """Those steps, each once."""
    own_steps: NDArray[np.int64]
    """The same with the steps that trajectories in flight belong to."""
    uids: tuple[int, int]
    """Smallest and largest prompt."""
    quiet: int = 0
    """Figures made since it was computed."""
    settled: bool = False
    """Its lengths are among the sorted ones."""


class FlowBlocks:
    """The figures of one job of a store."""

    def __init__(
        self,
        store: FlowStore,
        block_rows: int = BLOCK_ROWS,
        settle_updates: int = SETTLE_UPDATES,
    ) -> None:
        self._store = store
        self._block_rows = block_rows
        self._settle_updates = settle_updates
        self._job = -1
        self._blocks: list[_Block] = []
        self._steps: dict[int, StepFigures] = {}
        self._tables: dict[int, FlowTable] = {}
        self._settled = SettledLengths([name for name, _, _ in TRANSITIONS])
        self.num_computed = 0
        """Blocks computed by the last `update`."""

    def update(self, job: int) -> None:
        """Bring the blocks up to date; the store must be flushed."""
        store, rows = self._store, self._block_rows
        touched, prompts = store.take_touched()
        if job != self._job:
            self._job = job
            self._blocks.clear()
            self._steps.clear()
            self._tables = {}
            self._settled.clear()
        stale = self._stale(touched, prompts)
        self._stir(stale)
        self.num_computed = len(stale)
        affected: set[int] = set()
        fresh: dict[int, FlowTable] = {}
        for number in stale:
            first = number * rows
            last = min(first + rows, store.num_trajectories)
            table = fresh[number] = flow_table(store, job, first, last)
            uids = np.array(store.ids.trajectory_uids[first:last], dtype=np.int64)
            consumed = _consumed(table, first, last)
            block = _Block(
                last - first,
                None,
                consumed,
                np.unique(consumed[consumed != NO_STEP]),
                table.own_steps(),
                (int(uids.min()), int(uids.max())),
            )
            if number < len(self._blocks):
                changed = touched[(touched >= first) & (touched < last)] - first
                before = self._blocks[number].consumed_by
                affected.update(before[changed[changed < len(before)]].tolist())
                affected.update(consumed[changed].tolist())
                self._blocks[number] = block
            else:
                self._blocks.append(block)
                affected.update(block.steps.tolist())
        affected.discard(NO_STEP)
        self._update_steps(affected, fresh)
        self._tables = fresh if len(fresh) <= MAX_KEPT_TABLES else {}

    def figures(self, settings: FlowSettings) -> FlowFigures:
        """Figures of the job."""
        parts = [self._part(number) for number in range(len(self._blocks))]
        self._tables = {}
        self._settle()
        moving = [
            part.lengths
            for part, block in zip(parts, self._blocks, strict=True)
            if not block.settled
        ]
        lengths = {
            name: self._settled.lengths(name, [one[name] for one in moving])
            for name, _, _ in TRANSITIONS
        }
        return combined_figures(self._store, self._job, settings, parts, lengths)

    def steps(self) -> list[StepFigures]:
        """Rows per step; windows are not filled in."""
        return [self._steps[step] for step in sorted(self._steps)]

    def table_of_step(self, step: int) -> FlowTable:
        """Trajectories of one step, those in flight included."""
        rows = self._block_rows
        tables = [
            flow_table(self._store, self._job, number * rows, number * rows + block.size)
            for number, block in enumerate(self._blocks)
            if (block.own_steps == step).any()
        ]
        whole = joined_tables(tables) if tables else flow_table(self._store, self._job, 0, 0)
        return whole.of_step(step)

    def _stale(self, touched: NDArray[np.int64], prompts: NDArray[np.int64]) -> list[int]:
        rows, count = self._block_rows, self._store.num_trajectories
        stale = {int(number) for number in np.unique(touched // rows)}
        num_blocks = -(-count // rows)
        stale.update(range(len(self._blocks), num_blocks))
        for number, block in enumerate(self._blocks):
            grown = block.size != min(rows, count - number * rows)
            low, high = block.uids
            if grown or ((prompts >= low) & (prompts <= high)).any():
                stale.add(number)
        return sorted(stale)

    def _part(self, number: int) -> FlowPart:
        block = self._blocks[number]
        if block.part is None:
            table, first = self._tables.get(number), number * self._block_rows
            if table is None:
                table = flow_table(self._store, self._job, first, first + block.size)
            block.part = part_of(table)
        return block.part

    def _stir(self, stale: list[int]) -> None:
        """Take blocks that are computed again out of the sorted lengths."""
        known = [self._blocks[number] for number in stale if number < len(self._blocks)]
        stirred = [block for block in known if block.settled]
        if len(stirred) > MANY_STIRRED:
            self._settled.clear()
            for block in self._blocks:
                block.settled, block.quiet = False, 0
            return
        for block in stirred:
            if block.part is not None:  # it is: only then can it have come to rest
                self._settled.remove(block.part.lengths)

    def _settle(self) -> None:
        """Put blocks that have come to rest among the sorted lengths."""
        resting = []
        for block in self._blocks:
            block.quiet += 1
            full = block.size == self._block_rows
            if full and block.quiet > self._settle_updates and not block.settled:
                resting.append(block)
        lengths = [block.part.lengths for block in resting if block.part is not None]
        if lengths:
            self._settled.add(lengths)
        for block in resting:
            block.settled = True

    def _update_steps(self, affected: set[int], fresh: dict[int, FlowTable]) -> None:
        if not affected:
            return
        wanted = np.array(sorted(affected), dtype=np.int64)
        tables = []
        for number, block in enumerate(self._blocks):
            if np.isin(block.steps, wanted).any():
                table = fresh.get(number)
                first = number * self._block_rows
                if table is None:
                    table = flow_table(self._store, self._job, first, first + block.size)
                tables.append(table.take(np.isin(table.consumed_by(), wanted)))
        self._forget(affected)
        if tables:
            rows = consumed_by_step(joined_tables(tables))
            self._steps.update((row.step, row) for row in rows)

    def _forget(self, steps: Iterable[int]) -> None:
        for step in steps:
            self._steps.pop(step, None)


def _consumed(table: FlowTable, first: int, last: int) -> NDArray[np.int64]:
    """Step that consumed each of the store's trajectories from `first` to before `last`."""
    consumed = np.full(last - first, NO_STEP, dtype=np.int64)
    step = table.consumed_by()
    consumed[table.index - first] = np.where(np.isnan(step), NO_STEP, step)
    return consumed
