"""Iter Wall, every phase and the collector's times, computed from a timeline alone.

    iteration   one per learner iteration     Iter Wall, exclusive phases, nested inference times
    tick        one per collector cycle       exclusive phases, nested step times (SAC, PPO)
    rollout     one per rollout               Rollout Wall (PPO, APPO); APPO's moving averages

Figures are in the units of their tags, so they stand beside the logged scalars as they are.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from unilab_core.telemetry.metric_schema import METRICS, in_ms
from unilab_core.telemetry.timeline.reader import Slice, TimelineReader
from unilab_core.telemetry.timeline.session import (
    CYCLE_NAME,
    ITER_WALL_TAG,
    ITERATION,
    ROLLOUT,
    ROLLOUT_WALL_TAG,
    TICK,
    title,
)

EMA_ALPHA = 0.1
"""Weight of the newest step in APPO's averages."""
MAX_PENDING = 100_000
"""Slices kept while their cycle is not complete."""

_NS_PER_MS = 1e6
_ACTION_WAIT_TAG = "Perf/collector_learner_action_wait_ms"
_MLP_INFER_TAG = "Perf/collector_mlp_infer_ms"

Kind = Literal["iteration", "tick", "rollout"]


@dataclass(kw_only=True, slots=True)
class CycleFigures:
    """Figures of one cycle."""

    kind: Kind
    number: int
    wall_ns: int
    values: dict[str, float]
    """By tag, in the tag's unit."""
    exclusive_ns: int = 0
    """Sum of the phases that share the wall."""


@dataclass(slots=True)
class _Process:
    pending: list[Slice] = field(default_factory=list)
    averages_ms: dict[str, float] = field(default_factory=dict)
    rollout_ns: int = 0
    """PPO: cycles since the last rollout ended."""
    first_wait_ns: int | None = None
    """PPO: the wait for the first action of the running rollout."""


def cycle_figures(paths: Iterable[Path]) -> Iterator[CycleFigures]:
    """Every complete cycle of a timeline, each process in order.

    Raises:
        DamagedTraceError: a file is no timeline, or damaged before its end.
    """
    processes: dict[str, _Process] = {}
    for found in TimelineReader(paths).slices():
        state = processes.setdefault(found.track.process, _Process())
        if found.track.name == title(ITER_WALL_TAG):
            yield _cycle("iteration", found, ITERATION, state)
        elif found.track.name == CYCLE_NAME:
            figures = _cycle("tick", found, TICK, state)
            state.rollout_ns += found.duration_ns
            if state.first_wait_ns is None:
                wait_ms = figures.values.get(_ACTION_WAIT_TAG, 0.0)
                state.first_wait_ns = round(wait_ms * _NS_PER_MS)
            yield figures
        elif found.track.name == title(ROLLOUT_WALL_TAG):
            yield _rollout(found, state)
        elif found.tag and len(state.pending) < MAX_PENDING:
            state.pending.append(found)
            _fold_average(found, state)


def _cycle(kind: Kind, whole: Slice, note: str, state: _Process) -> CycleFigures:
    """The slices since the previous cycle; what came before its begin was the warm-up."""
    spent_ns: dict[str, int] = {}
    exclusive_ns = 0
    for part in state.pending:
        if part.start_ns < whole.start_ns:
            continue
        spent_ns[part.tag] = spent_ns.get(part.tag, 0) + part.duration_ns
        if part.depth == 0:
            exclusive_ns += part.duration_ns
    state.pending.clear()
    values = {tag: _in_unit(tag, spent) for tag, spent in spent_ns.items()}
    if whole.tag:
        values[whole.tag] = _in_unit(whole.tag, whole.duration_ns)
    return CycleFigures(
        kind=kind,
        number=whole.notes.get(note, -1),
        wall_ns=whole.duration_ns,
        values=values,
        exclusive_ns=exclusive_ns,
    )


def _rollout(whole: Slice, state: _Process) -> CycleFigures:
    """APPO's slice is the rollout; PPO's leaves out the learner's update, as its metric does."""
    wall_ns = whole.duration_ns if whole.tag else state.rollout_ns - (state.first_wait_ns or 0)
    state.rollout_ns, state.first_wait_ns = 0, None
    state.pending.clear()
    return CycleFigures(
        kind="rollout",
        number=whole.notes.get(ROLLOUT, -1),
        wall_ns=wall_ns,
        values={ROLLOUT_WALL_TAG: _in_unit(ROLLOUT_WALL_TAG, wall_ns), **state.averages_ms},
    )


def _fold_average(part: Slice, state: _Process) -> None:
    """APPO reports moving averages over single steps, each of which begins with inference."""
    if part.tag == _MLP_INFER_TAG or state.averages_ms:
        spent_ms = part.duration_ns / _NS_PER_MS
        before_ms = state.averages_ms.get(part.tag, spent_ms)
        state.averages_ms[part.tag] = before_ms + EMA_ALPHA * (spent_ms - before_ms)


def _in_unit(tag: str, spent_ns: int) -> float:
    if tag not in METRICS:
        return spent_ns / _NS_PER_MS
    return spent_ns / _NS_PER_MS / in_ms(tag, 1.0)
