"""What a block of trajectories contributes to the figures, and how blocks add up.

Trajectories are numbered as they are discovered, so appended events touch the newest few blocks;
what the others contribute is computed once. Everything here is a sum, a minimum, a set of values,
or a choice by (value, name), so the blocks may be cut anywhere.

Legend: T trajectories of a block.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unilab_core.telemetry.rl_trace.flow_table import Floats, FlowTable, Mask, durations, seconds

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
MAX_TIES = 1_000
"""Of trajectories with equal times this many are put in order by name."""

Ints = NDArray[np.int64]
Named = tuple[float, str]
"""(minus milliseconds, trajectory): sorts the slowest first, equal ones by name."""


@dataclass(slots=True)
class Flight:
    """Trajectories without an end [F]."""

    index: Ints
    """Number in the store."""
    last: Floats
    milestone: Ints
    """Into IN_FLIGHT."""
    num_turns: Ints
    step: Floats
    active_ms: Floats
    """From agent start to the buffer or the last event."""


@dataclass(frozen=True, slots=True)
class Lags:
    """How far behind the trained trajectories of a block were."""

    num_syncs: int
    """Synchronisations that these counts know of, up to `latest_ms`."""
    latest_ms: float
    """Last time that the counts depend on."""
    counts: tuple[dict[int, int], dict[int, int], dict[int, int]]
    """Lag, worst lag and span to trajectories."""


@dataclass(slots=True)
class FlowPart:
    """Contribution of one block."""

    size: int
    counts: dict[str, int]
    """By name of `totals`, without `trajs` and `uids`."""
    reached: Ints
    """Trajectories by level of FUNNEL."""
    exits: Ints
    """[exit, (count, failed, discarded)]"""
    waiting: Ints
    """In flight by milestone."""
    lengths: dict[str, Floats]
    """Transition to milliseconds of the trajectories that have both ends."""
    slowest: dict[str, list[Named]]
    negative: int
    turns: Ints
    """[n] trajectories with n finished generation rounds."""
    useful: tuple[float, int]
    """Active milliseconds of trained trajectories, and how many know theirs."""
    lost: tuple[float, int]
    """The same of trajectories that ended without being trained."""
    flight: Flight
    trained_at: tuple[Floats, Floats, Floats, Floats]
    """Of the trained: generation start and end, step that trained, own step."""
    busy: tuple[Floats, Floats]
    """Starts and ends of the times with a trajectory in its rollout, merged."""
    open_start: float
    """Earliest start of a rollout that goes on; infinity: none."""
    lags: Lags | None = None
    """Kept from one set of figures to the next."""


def part_of(table: FlowTable) -> FlowPart:
    """Contribution of the trajectories of a table."""
    lengths, slowest, negative = _transitions(table)
    trained, in_flight, lost = table.has("trained"), table.in_flight, table.lost
    active = _active_ms(table)
    reached = reached_levels(table)
    rows = np.flatnonzero(trained)
    return FlowPart(
        size=len(table),
        counts={
            "rewarded": int(table.has("reward").sum()),
            "sampled": int(table.has("sampled").sum()),
            "trained": int(trained.sum()),
            "in_flight": int(in_flight.sum()),
            "failed": int(table.status("FAILED").sum()),
            "discarded": int(table.status("DISCARDED").sum()),
            "cancelled": int(table.status("CANCELLED").sum()),
            "lost": int(lost.sum()),
        },
        reached=np.array([int(mask.sum()) for mask in reached.values()], dtype=np.int64),
        exits=_exits(table, reached),
        waiting=np.bincount(milestone_rows(table)[in_flight], minlength=len(IN_FLIGHT)),
        lengths=lengths,
        slowest=slowest,
        negative=negative,
        turns=np.bincount(table.num_turns),
        useful=_sum_known(active[trained]),
        lost=_sum_known(active[lost]),
        flight=_flight(table, in_flight, active),
        trained_at=(
            table.at["generation_start"][rows],
            table.at["generation_end"][rows],
            table.trained_step[rows],
            table.step[rows],
        ),
        busy=_busy(table),
        open_start=_open_start(table, in_flight),
    )


def transition_ms(table: FlowTable, name: str) -> tuple[Floats, int]:
    """Milliseconds of one transition [T], NaN where an end is missing; and the negative ones."""
    _, start, end = next(entry for entry in TRANSITIONS if entry[0] == name)
    if start == "before_advantage":
        ref, logprob = table.at["ref_logprob"], table.at["logprob"]
        return durations(table, np.where(np.isnan(ref), logprob, ref), table.at[end])
    return durations(table, table.at[start], table.at[end])


def reached_levels(table: FlowTable) -> dict[str, Mask]:
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


def milestone_rows(table: FlowTable) -> Ints:
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


def slowest_of(parts: Sequence[list[Named]]) -> tuple[tuple[str, float], ...]:
    """Up to five (trajectory, seconds), slowest first."""
    named = heapq.nsmallest(NUM_SLOWEST, itertools.chain.from_iterable(parts))
    return tuple((name, seconds(-value)) for value, name in named)


def idle_s(parts: Sequence[FlowPart], now_ms: int) -> float | None:
    """Seconds with no trajectory between agent start and rollout end, over all gaps."""
    starts = [part.busy[0] for part in parts]
    ends = [part.busy[1] for part in parts]
    open_start = min((part.open_start for part in parts), default=np.inf)
    if np.isfinite(open_start):
        # All that goes on lasts until now: together they are one stretch.
        starts.append(np.array([open_start]))
        ends.append(np.array([float(now_ms)]))
    start = np.concatenate(starts) if starts else np.empty(0)
    if not len(start):
        return None
    order = np.argsort(start, kind="stable")
    start = start[order]
    end = np.maximum.accumulate(np.concatenate(ends)[order])
    return seconds(np.maximum(start[1:] - end[:-1], 0.0).sum())


def added(parts: Sequence[tuple[float, int]]) -> float | None:
    """Seconds of sums with their numbers of terms; None where no term is known."""
    known = sum(number for _, number in parts)
    return seconds(sum(total for total, _ in parts)) if known else None


def joined(parts: Sequence[Floats]) -> Floats:
    """Values of all blocks."""
    return np.concatenate(parts) if parts else np.empty(0)


def counted(parts: Sequence[Mapping[str, int]], name: str) -> int:
    """A count over all blocks."""
    return sum(part[name] for part in parts)


def _transitions(table: FlowTable) -> tuple[dict[str, Floats], dict[str, list[Named]], int]:
    lengths, slowest, negative = {}, {}, 0
    for name in (transition[0] for transition in TRANSITIONS):
        ms, below = transition_ms(table, name)
        rows = np.flatnonzero(~np.isnan(ms))
        lengths[name] = ms[rows]
        slowest[name] = _slowest(lengths[name], table, rows)
        negative += below
    return lengths, slowest, negative


def _slowest(ms: Floats, table: FlowTable, rows: Ints) -> list[Named]:
    if not len(ms):
        return []
    place = min(NUM_SLOWEST, len(ms)) - 1
    cut = -np.partition(-ms, place)[place]
    above, ties = np.flatnonzero(ms > cut), np.flatnonzero(ms == cut)[:MAX_TIES]
    at = np.concatenate([above, ties]).tolist()
    return sorted((-float(ms[i]), table.name(int(rows[i]))) for i in at)[:NUM_SLOWEST]


def _exits(table: FlowTable, reached: dict[str, Mask]) -> Ints:
    masks = [reached["traj"], *(reached[name] for name in FLOW[1:])]
    failed = table.status("FAILED")
    dropped = (table.status("DISCARDED") | table.status("CANCELLED")) & ~failed
    rows = []
    for here, there in itertools.pairwise(masks):
        left = here & ~there
        rows.append((int(left.sum()), int((left & failed).sum()), int((left & dropped).sum())))
    return np.array(rows, dtype=np.int64)


def _active_ms(table: FlowTable) -> Floats:
    end = np.where(np.isnan(table.at["buffered"]), table.at["last"], table.at["buffered"])
    return durations(table, table.at["run"], end)[0]


def _sum_known(ms: Floats) -> tuple[float, int]:
    known = ms[~np.isnan(ms)]
    return float(known.sum()), len(known)


def _flight(table: FlowTable, in_flight: Mask, active: Floats) -> Flight:
    rows = np.flatnonzero(in_flight)
    return Flight(
        index=table.index[rows],
        last=table.at["last"][rows],
        milestone=milestone_rows(table)[rows],
        num_turns=table.num_turns[rows].astype(np.int64),
        step=table.step[rows],
        active_ms=active[rows],
    )


def _busy(table: FlowTable) -> tuple[Floats, Floats]:
    start = table.at["run"]
    end = np.fmax(table.at["finished"], table.at["buffered"])
    keep = ~np.isnan(start) & ~np.isnan(end)
    order = np.argsort(start[keep], kind="stable")
    start, end = start[keep][order], end[keep][order]
    if not len(start):
        return start, end
    until = np.maximum.accumulate(end)
    # A new stretch begins where nobody who started earlier is still at work.
    first = np.concatenate(([True], start[1:] > until[:-1]))
    heads = np.flatnonzero(first)
    return start[heads], until[np.concatenate((heads[1:] - 1, [len(start) - 1]))]


def _open_start(table: FlowTable, in_flight: Mask) -> float:
    end = np.fmax(table.at["finished"], table.at["buffered"])
    starts = table.at["run"][np.isnan(end) & in_flight]
    starts = starts[~np.isnan(starts)]
    return float(starts.min()) if len(starts) else np.inf
