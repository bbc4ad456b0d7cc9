"""Figures of the sample flow of one job.

Times are Unix ms inside and seconds outside. Percentiles interpolate linearly between order
statistics at (n - 1) q; without samples they are None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from unilab_core.telemetry.rl_trace.flow_store import FlowStore
from unilab_core.telemetry.rl_trace.flow_table import (
    Floats,
    FlowTable,
    Mask,
    durations,
    flow_table,
    seconds,
)
from unilab_core.telemetry.rl_trace.flow_waste import (
    FlowSettings,
    Staleness,
    active_s,
    lost_rows,
    rollout_idle_s,
    staleness,
)

TRANSITIONS = (
    ("dispatch_wait", "generated", "dispatched"),
    ("start_wait", "dispatched", "run"),
    ("env_prepare", "run", "generation_start"),
    ("generation", "generation_start", "generation_end"),
    ("agent_finish", "generation_end", "finished"),
    ("reward", "finished", "reward"),
    ("buffer_wait", "buffered", "sampled"),
    ("logprob", "sampled", "logprob"),
    ("ref_logprob", "logprob", "ref_logprob"),
    ("advantage", "before_advantage", "advantage"),
    ("update", "advantage", "trained"),
    ("e2e", "generated", "trained"),
)
FUNNEL = ("traj", "dispatch", "run", "rollout", "reward", "sampled", "trained")
FLOW = ("gen", "run", "rollout", "sampled", "trained")
EXITS = ("not-dispatched", "generating", "awaiting-sampling", "awaiting-training")
IN_FLIGHT = (
    "generated-not-dispatched",
    "dispatched-not-started",
    "started-awaiting-generation",
    "generating",
    "rollout-done-awaiting-score",
    "scored-awaiting-sampling",
    "sampled-awaiting-training",
)
NUM_SLOWEST = 5
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


def flow_figures(
    store: FlowStore, job: int, settings: FlowSettings, table: FlowTable | None = None
) -> FlowFigures:
    """All figures of one job."""
    table = flow_table(store, job) if table is None else table
    transitions, negative = transition_figures(table)
    columns, exits = _flow(table)
    lost = lost_rows(table, settings)
    num_turns = table.num_turns[table.num_turns > 0].astype(float)
    useful = active_s(table, table.has("trained"))
    wasted = active_s(table, lost)
    num_trained, num_lost = int(table.has("trained").sum()), int(lost.sum())
    undispatched, estimated, complete = _groups(store, job, table, settings)
    return FlowFigures(
        totals=_totals(store, job, table),
        funnel=_funnel(table),
        columns=columns,
        exits=exits,
        transitions=transitions,
        milestones=_milestone_counts(table),
        undispatched=undispatched,
        undispatched_estimated=estimated,
        stuck=stuck_list(table, settings),
        stages=_stages(store, table),
        turns=_distribution(1000.0 * num_turns, None, None),
        useful_s=useful,
        wasted_s=wasted,
        waste_pct=_share_pct(wasted, useful),
        loss_pct=_share_pct(num_lost, num_trained),
        staleness=staleness(store, job, table),
        groups_complete=complete,
        rollout_idle_s=rollout_idle_s(table, settings.now_ms),
        negative=negative,
    )


def transition_figures(table: FlowTable) -> tuple[dict[str, Distribution], int]:
    """Transition to distribution, and the number of negative durations left out."""
    figures, negative = {}, 0
    for name in (transition[0] for transition in TRANSITIONS):
        lengths, below = transition_ms(table, name)
        rows = np.flatnonzero(~np.isnan(lengths))
        figures[name] = _distribution(lengths[rows], table, rows)
        negative += below
    return figures, negative


def transition_ms(table: FlowTable, name: str) -> tuple[Floats, int]:
    """Milliseconds of one transition [T], NaN where an end is missing; and the negative ones."""
    _, start, end = next(entry for entry in TRANSITIONS if entry[0] == name)
    if start == "before_advantage":
        ref, logprob = table.at["ref_logprob"], table.at["logprob"]
        return durations(table, np.where(np.isnan(ref), logprob, ref), table.at[end])
    return durations(table, table.at[start], table.at[end])


def stuck_list(table: FlowTable, settings: FlowSettings) -> tuple[Stuck, ...]:
    """Trajectories in flight, longest idle first."""
    rows = np.flatnonzero(table.in_flight)
    last = table.at["last"][rows]
    order = np.argsort(np.where(np.isnan(last), np.inf, last), kind="stable")
    limit = settings.num_stuck
    if len(order) > limit:  # equal times at the cut: take them all, order by name, cut then
        cut = last[order[limit - 1]]
        order = order[: int(np.searchsorted(last[order], cut, side="right"))][: 20 * limit]
    milestones = _milestone_rows(table)
    found = [
        Stuck(
            table.name(row),
            IN_FLIGHT[milestones[row]],
            _idle_s(settings.now_ms, float(table.at["last"][row])),
            int(table.num_turns[row]),
        )
        for row in rows[order].tolist()
    ]
    found.sort(key=lambda one: (-(one.idle_s or 0), one.id))
    return tuple(found[:limit])


def _share_pct(part: float | None, rest: float | None) -> float | None:
    whole = (part or 0.0) + (rest or 0.0)
    return 100.0 * (part or 0.0) / whole if whole > 0 else None


def _idle_s(now_ms: int, last_ms: float) -> int | None:
    return None if np.isnan(last_ms) else max(int((now_ms - last_ms) // 1000), 0)


def _distribution(ms: Floats, table: FlowTable | None, rows: np.ndarray | None) -> Distribution:
    if not len(ms):
        return Distribution()
    p50, p90, p99 = (seconds(value) for value in np.percentile(ms, (50, 90, 99)))
    slowest: tuple[tuple[str, float], ...] = ()
    if table is not None and rows is not None:
        cut = -np.partition(-ms, min(NUM_SLOWEST, len(ms)) - 1)[min(NUM_SLOWEST, len(ms)) - 1]
        at = np.flatnonzero(ms >= cut)
        at = at[np.argsort(-ms[at], kind="stable")][:10_000]
        named = sorted((-float(ms[i]), table.name(int(rows[i]))) for i in at.tolist())
        slowest = tuple((name, seconds(-value)) for value, name in named[:NUM_SLOWEST])
    return Distribution(
        n=len(ms),
        avg=seconds(ms.mean()),
        p50=p50,
        p90=p90,
        p99=p99,
        max=seconds(ms.max()),
        slowest=slowest,
    )


def _totals(store: FlowStore, job: int, table: FlowTable) -> dict[str, int]:
    return {
        "trajs": len(table),
        "uids": int((np.array(store.ids.uid_jobs, dtype=np.int64) == job).sum()),
        "rewarded": int(table.has("reward").sum()),
        "sampled": int(table.has("sampled").sum()),
        "trained": int(table.has("trained").sum()),
        "in_flight": int(table.in_flight.sum()),
        "failed": int(table.status("FAILED").sum()),
        "discarded": int(table.status("DISCARDED").sum()),
        "cancelled": int(table.status("CANCELLED").sum()),
    }


def _reached(table: FlowTable) -> dict[str, Mask]:
    """Level to trajectories that reached it; a later level implies the earlier ones."""
    trained = table.has("trained")
    sampled = trained | table.has("sampled", "logprob", "ref_logprob", "advantage")
    reward = sampled | table.has("reward")
    rollout = reward | table.has("finished")
    run = rollout | table.has("run", "generation_start", "any_generation_end")
    dispatch = run | table.has("dispatched")
    everything = np.ones(len(table), dtype=bool)
    return dict(
        zip(FUNNEL, (everything, dispatch, run, rollout, reward, sampled, trained), strict=True)
    )


def _funnel(table: FlowTable) -> tuple[Level, ...]:
    first = len(table)
    return tuple(
        Level(level, int(mask.sum()), round(100.0 * int(mask.sum()) / first, 6) if first else None)
        for level, mask in _reached(table).items()
    )


def _flow(table: FlowTable) -> tuple[tuple[tuple[str, int], ...], tuple[Exit, ...]]:
    reached = _reached(table)
    masks = [reached["traj"], *(reached[name] for name in FLOW[1:])]
    failed = table.status("FAILED")
    dropped = (table.status("DISCARDED") | table.status("CANCELLED")) & ~failed
    exits = []
    for name, here, there in zip(EXITS, masks[:-1], masks[1:], strict=True):
        left = here & ~there
        parts = int((left & failed).sum()), int((left & dropped).sum())
        exits.append(Exit(name, int(left.sum()), *parts))
    return tuple((n, int(m.sum())) for n, m in zip(FLOW, masks, strict=True)), tuple(exits)


def _milestone_rows(table: FlowTable) -> np.ndarray:
    """Index into IN_FLIGHT [T]."""
    result = np.zeros(len(table), dtype=np.int64)
    for number, names in (
        (1, ("dispatched",)),
        (2, ("run",)),
        (3, ("generation_start", "any_generation_end")),
        (4, ("finished",)),
        (5, ("reward",)),
        (6, ("sampled", "logprob", "ref_logprob", "advantage")),
    ):
        result[table.has(*names)] = number
    return result


def _milestone_counts(table: FlowTable) -> dict[str, int]:
    counts = np.bincount(_milestone_rows(table)[table.in_flight], minlength=len(IN_FLIGHT))
    return dict(zip(IN_FLIGHT, counts.tolist(), strict=True))


def _groups(
    store: FlowStore, job: int, table: FlowTable, settings: FlowSettings
) -> tuple[int, bool, int | None]:
    """Trajectories generated but not dispatched, whether that is a guess, complete prompts."""
    uid_jobs = np.array(store.ids.uid_jobs, dtype=np.int64)
    present = np.bincount(table.uid, minlength=len(uid_jobs))
    mine = np.flatnonzero(uid_jobs == job)
    sizes = settings.group_sizes
    usual = max(sizes.values(), default=0)
    wanted = np.full(len(uid_jobs), usual, dtype=np.int64)
    for uid, size in sizes.items():
        wanted[uid] = size
    if usual:
        missing = int(np.maximum(wanted[mine] - present[mine], 0).sum())
        return missing, False, int((present[mine] >= wanted[mine]).sum())
    alone = int((present[mine] == 0).sum())
    return alone, alone > 0, None


def _stages(store: FlowStore, table: FlowTable) -> tuple[StageCount, ...]:
    """Stages by name; those without an alias by their median place, after the known ones."""
    offsets: dict[int, list[float]] = {}
    lengths: dict[int, list[float]] = {}
    first_ms = store.columns["first_ms"]
    own = set(table.index.tolist()) if store.stage_spans else set()
    for (code, stage), (first, last) in store.stage_spans.items():
        if code in own:
            offsets.setdefault(stage, []).append(first - int(first_ms[code]))
            lengths.setdefault(stage, []).append(last - first)
    result = []
    for stage, rows in store.stage_rows.items():
        name, known = store.ids.stages[stage], store.ids.known_stages[stage]
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
