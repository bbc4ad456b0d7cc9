"""Figures of the sample flow of one job.

Times are Unix ms inside and seconds outside. Percentiles interpolate linearly between order
statistics at (n - 1) q; without samples they are None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unilab_core.telemetry.rl_trace.flow_lengths import Lengths
from unilab_core.telemetry.rl_trace.flow_parts import (
    EXITS,
    FLOW,
    FUNNEL,
    IN_FLIGHT,
    TRANSITIONS,
    FlowPart,
    added,
    counted,
    idle_s,
    joined,
    part_of,
    slowest_of,
)
from unilab_core.telemetry.rl_trace.flow_store import FlowStore
from unilab_core.telemetry.rl_trace.flow_table import FlowTable, flow_table, seconds
from unilab_core.telemetry.rl_trace.flow_waste import (
    FlowSettings,
    Staleness,
    lost_flight,
    staleness,
)

FEW_FOR_P99 = 100


@dataclass(frozen=True, slots=True)
class Distribution:
    """Seconds of one transition over the trajectories that have both its ends."""

    n: int = 0
    avg: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None
    slowest: tuple[tuple[str, float], ...] = ()
    """Up to five (trajectory, seconds), slowest first."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the funnel."""

    level: str
    count: int
    pct: float | None
    """Share of the first level."""


@dataclass(frozen=True, slots=True)
class Exit:
    """What left, or waits, between two columns of the flow."""

    name: str
    count: int
    failed: int
    discarded: int
    """Discarded or cancelled."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """A trajectory without an end."""

    id: str
    milestone: str
    idle_s: int | None
    """Seconds since its last event, rounded down."""
    turns: int


@dataclass(frozen=True, slots=True)
class StageCount:
    """Rows of a stage; stages without an alias also have a place and a length."""

    stage: str
    rows: int
    known: bool
    offset_p50_s: float | None = None
    """Median time from a trajectory's first event to its first row of the stage."""
    length_p50_s: float | None = None


@dataclass(frozen=True, slots=True)
class FlowFigures:
    """Everything the sample-flow page shows, but for the table of steps."""

    totals: Mapping[str, int]
    funnel: tuple[Level, ...]
    columns: tuple[tuple[str, int], ...]
    exits: tuple[Exit, ...]
    transitions: Mapping[str, Distribution]
    milestones: Mapping[str, int]
    """In-flight trajectories by what they wait for."""
    undispatched: int
    undispatched_estimated: bool
    stuck: tuple[Stuck, ...]
    stages: tuple[StageCount, ...]
    turns: Distribution
    """Finished generation rounds per trajectory (a number, not seconds)."""
    useful_s: float | None
    """Seconds of generation that was trained on; None: not known."""
    wasted_s: float | None
    waste_pct: float | None
    loss_pct: float | None
    staleness: Staleness
    groups_complete: int | None
    """Prompts with all their trajectories; None: group size not known."""
    rollout_idle_s: float | None
    negative: int


def flow_figures(store: FlowStore, job: int, settings: FlowSettings) -> FlowFigures:
    """All figures of one job, from nothing."""
    return combined_figures(store, job, settings, [part_of(flow_table(store, job))])


def combined_figures(
    store: FlowStore,
    job: int,
    settings: FlowSettings,
    parts: Sequence[FlowPart],
    lengths: Mapping[str, Lengths] | None = None,
) -> FlowFigures:
    """All figures of one job from the contributions of its blocks.

    `lengths` are those of all parts by transition, where somebody keeps them.
    """
    counts = [part.counts for part in parts]
    size = sum(part.size for part in parts)
    reached = dict(zip(FUNNEL, _added_up([part.reached for part in parts], 7), strict=True))
    num_uids, undispatched, estimated, complete = _groups(store, job, settings)
    flight_lost = lost_flight(parts, settings)
    wasted = added([*(part.lost for part in parts), flight_lost.active])
    useful = added([part.useful for part in parts])
    num_lost = counted(counts, "lost") + flight_lost.count
    names = ("rewarded", "sampled", "trained", "in_flight", "failed", "discarded", "cancelled")
    return FlowFigures(
        totals={
            "trajs": size,
            "uids": num_uids,
            **{name: counted(counts, name) for name in names},
        },
        funnel=tuple(
            Level(level, count, round(100.0 * count / size, 6) if size else None)
            for level, count in reached.items()
        ),
        columns=tuple((name, reached[FUNNEL[0] if name == "gen" else name]) for name in FLOW),
        exits=_exits(parts),
        transitions=_transitions(parts, lengths or _lengths(parts)),
        milestones=dict(
            zip(IN_FLIGHT, _added_up([part.waiting for part in parts], 7), strict=True)
        ),
        undispatched=undispatched,
        undispatched_estimated=estimated,
        stuck=_stuck_list(store, parts, settings),
        stages=_stages(store, job),
        turns=_turns(parts),
        useful_s=useful,
        wasted_s=wasted,
        waste_pct=_share_pct(wasted, useful),
        loss_pct=_share_pct(num_lost, counted(counts, "trained")),
        staleness=staleness(store, job, parts),
        groups_complete=complete,
        rollout_idle_s=idle_s(parts, settings.now_ms),
        negative=sum(part.negative for part in parts),
    )


def transition_figures(table: FlowTable) -> dict[str, Distribution]:
    """Transition to distribution, of the trajectories of a table."""
    parts = [part_of(table)]
    return _transitions(parts, _lengths(parts))


def _lengths(parts: Sequence[FlowPart]) -> dict[str, Lengths]:
    return {
        name: Lengths(np.empty(0), joined([part.lengths[name] for part in parts]))
        for name, _, _ in TRANSITIONS
    }


def _transitions(
    parts: Sequence[FlowPart], lengths: Mapping[str, Lengths]
) -> dict[str, Distribution]:
    return {
        name: _distribution(lengths[name], slowest_of([part.slowest[name] for part in parts]))
        for name, _, _ in TRANSITIONS
    }


def _distribution(ms: Lengths, slowest: tuple[tuple[str, float], ...]) -> Distribution:
    if not len(ms):
        return Distribution()
    p50, p90, p99 = (seconds(value) for value in ms.percentiles())
    return Distribution(
        n=len(ms),
        avg=seconds(ms.mean),
        p50=p50,
        p90=p90,
        p99=p99,
        max=seconds(ms.max),
        slowest=slowest,
    )


def _turns(parts: Sequence[FlowPart]) -> Distribution:
    """Rounds per trajectory that has any; a number, written in the place of seconds."""
    size = max((len(part.turns) for part in parts), default=0)
    counts = _added_up([part.turns for part in parts], size)
    rounds = np.repeat(np.arange(size), np.array(counts, dtype=np.int64))
    return _distribution(Lengths(np.empty(0), (1000 * rounds[rounds > 0]).astype(np.float64)), ())


def _exits(parts: Sequence[FlowPart]) -> tuple[Exit, ...]:
    total = np.zeros((len(EXITS), 3), dtype=np.int64)
    for part in parts:
        total += part.exits
    return tuple(Exit(name, *row) for name, row in zip(EXITS, total.tolist(), strict=True))


def _added_up(rows: Sequence[np.ndarray], size: int) -> list[int]:
    total = np.zeros(size, dtype=np.int64)
    for row in rows:
        total[: len(row)] += row
    return total.tolist()


def _stuck_list(
    store: FlowStore, parts: Sequence[FlowPart], settings: FlowSettings
) -> tuple[Stuck, ...]:
    """Trajectories in flight, longest idle first."""
    flights = [part.flight for part in parts]
    if not flights:
        return ()
    last = joined([flight.last for flight in flights])
    order = np.argsort(np.where(np.isnan(last), np.inf, last), kind="stable")
    limit = settings.num_stuck
    if len(order) > limit:  # equal times at the cut: take them all, order by name, cut then
        cut = last[order[limit - 1]]
        order = order[: int(np.searchsorted(last[order], cut, side="right"))][: 20 * limit]
    index = np.concatenate([flight.index for flight in flights])
    milestone = np.concatenate([flight.milestone for flight in flights])
    turns = np.concatenate([flight.num_turns for flight in flights])
    found = [
        Stuck(
            store.ids.trajectory_name(int(index[row])),
            IN_FLIGHT[milestone[row]],
            _idle_s(settings.now_ms, float(last[row])),
            int(turns[row]),
        )
        for row in order.tolist()
    ]
    found.sort(key=lambda one: (-(one.idle_s or 0), one.id))
    return tuple(found[:limit])


def _share_pct(part: float | None, rest: float | None) -> float | None:
    whole = (part or 0.0) + (rest or 0.0)
    return 100.0 * (part or 0.0) / whole if whole > 0 else None


def _idle_s(now_ms: int, last_ms: float) -> int | None:
    return None if np.isnan(last_ms) else max(int((now_ms - last_ms) // 1000), 0)


def _groups(
    store: FlowStore, job: int, settings: FlowSettings
) -> tuple[int, int, bool, int | None]:
    """Prompts; trajectories generated but not dispatched, if that is a guess; whole prompts."""
    uid_jobs = np.array(store.ids.uid_jobs, dtype=np.int64)
    uids = np.array(store.ids.trajectory_uids, dtype=np.int64)
    present = np.bincount(uids, minlength=len(uid_jobs))
    mine = np.flatnonzero(uid_jobs == job)
    sizes = settings.group_sizes
    usual = max(sizes.values(), default=0)
    if usual:
        wanted = np.full(len(uid_jobs), usual, dtype=np.int64)
        numbers = np.fromiter(sizes.keys(), dtype=np.int64, count=len(sizes))
        wanted[numbers] = np.fromiter(sizes.values(), dtype=np.int64, count=len(sizes))
        missing = int(np.maximum(wanted[mine] - present[mine], 0).sum())
        return len(mine), missing, False, int((present[mine] >= wanted[mine]).sum())
    alone = int((present[mine] == 0).sum())
    return len(mine), alone, alone > 0, None


def _stages(store: FlowStore, job: int) -> tuple[StageCount, ...]:
    """Stages by name; those without an alias by their median place, after the known ones."""
    offsets: dict[int, list[float]] = {}
    lengths: dict[int, list[float]] = {}
    first_ms, ids = store.columns["first_ms"], store.ids
    for (code, stage), (first, last) in store.stage_spans.items():
        if ids.uid_jobs[ids.trajectory_uids[code]] == job:
            offsets.setdefault(stage, []).append(first - int(first_ms[code]))
            lengths.setdefault(stage, []).append(last - first)
    result = []
    for stage, rows in store.stage_rows.items():
        name, known = ids.stages[stage], ids.known_stages[stage]
        if known:
            result.append(StageCount(name, rows, True))
            continue
        place, length = offsets.get(stage), lengths.get(stage)
        result.append(
            StageCount(
                name,
                rows,
                False,
                seconds(float(np.median(place))) if place else None,
                seconds(float(np.median(length))) if length else None,
            )
        )
    result.sort(key=lambda one: (not one.known, one.offset_p50_s or 0.0, one.stage))
    return tuple(result)
