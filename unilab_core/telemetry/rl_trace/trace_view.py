"""All events of one trajectory, read back from the files: its own, its prompt's, everyone's."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from unilab_core.telemetry.rl_trace.csv_rows import Row, glued_at, parse_content, parse_row
from unilab_core.telemetry.rl_trace.flow_ids import job_code, uid_code
from unilab_core.telemetry.rl_trace.flow_shards import (
    LOCATION_BITS,
    MAX_CONTINUATION_BYTES,
    MAX_CONTINUATION_LINES,
)
from unilab_core.telemetry.rl_trace.flow_store import NEVER, FlowStore
from unilab_core.telemetry.rl_trace.stage_aliases import Milestone, StageAliases

CHAIN = (
    Milestone.DISPATCHED,
    Milestone.RUN,
    Milestone.GENERATION_START,
    Milestone.FINISHED,
    Milestone.REWARD,
    Milestone.SAMPLED,
    Milestone.LOGPROB,
    Milestone.REF_LOGPROB,
    Milestone.ADVANTAGE,
    Milestone.TRAINED,
)
MAX_EVENTS = 5_000
MAX_ROW_BYTES = 64 * 1024
"""Of a longer row the page shows the beginning."""

_TURN = re.compile(r"\bturn(?:_index|_id|_no)?=(\d{1,6})\b")


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One event as the page shows it."""

    unix_ms: int
    scope: str
    """`A` its own, `B` of its prompt, `C` of everything, `opaque` of another category."""
    status: str
    stage: str
    source: str
    target: str
    detail: str | None
    event: str
    """Known event name, or empty."""
    turn: int | None
    turn_inferred: bool
    extra: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TraceView:
    """Events of one trajectory in order of time."""

    id: str
    events: tuple[TraceEvent, ...]
    num_left_out: int
    milestones: tuple[tuple[str, int], ...]
    """(name, Unix ms) of the milestones seen, in the order of the chain."""


def trace_view(
    store: FlowStore,
    aliases: StageAliases,
    paths: Callable[[int], Path | None],
    trajectory: int,
    *,
    now_ms: int,
    opaque: tuple[int, ...] = (),
) -> TraceView:
    """The trace of a trajectory of the store; `paths` gives the path of a file number."""
    uid = store.ids.trajectory_uids[trajectory]
    job = store.ids.uid_jobs[uid]
    own = store.locations(trajectory)
    inherited = store.locations(uid_code(uid))
    shared = store.locations(job_code(job))
    left_out = max(len(own) - MAX_EVENTS, 0)
    events = []
    for scope, places in (
        ("A", own[:MAX_EVENTS]),
        ("B", inherited[:MAX_EVENTS]),
        ("C", shared[-MAX_EVENTS:]),
        ("opaque", list(opaque)),
    ):
        for place in places:
            row = read_row(place, paths)
            if row is not None:
                events.append(_event(row, scope, aliases))
    events = _distinct(events)
    own_times = [event.unix_ms for event in events if event.scope == "A"]
    if own_times:
        first, last = min(own_times), max(own_times)
        ended = any(event.status not in ("", "RUNNING") for event in events if event.scope == "A")
        until = last if ended else max(last, now_ms)
        events = [
            event for event in events if event.scope != "C" or first <= event.unix_ms <= until
        ]
    events.sort(key=lambda event: (event.unix_ms, event.scope, event.stage, event.detail or ""))
    name = store.ids.trajectory_name(trajectory)
    milestones = milestones_of(store, trajectory)
    return TraceView(name, tuple(_with_turns(events)), left_out, milestones)


def milestones_of(store: FlowStore, trajectory: int) -> tuple[tuple[str, int], ...]:
    """The milestones of one trajectory that were seen, in the order of the chain."""
    times = store.milestones[trajectory].tolist()
    times[Milestone.DISPATCHED] = min(
        (times[kind] for kind in (Milestone.DISPATCHED, Milestone.DISPATCHED_INFERRED)),
        key=lambda ms: ms == NEVER,
    )
    times[Milestone.RUN] = min(
        (times[kind] for kind in (Milestone.RUN, Milestone.RUN_INFERRED)),
        key=lambda ms: ms == NEVER,
    )
    generated = int(store.uid_generated[store.ids.trajectory_uids[trajectory]])
    last_end = int(store.columns["generation_end"][trajectory])
    chain = [("generated", generated)]
    for kind in CHAIN:
        chain.append((kind.name.lower(), times[kind]))
        if kind is Milestone.GENERATION_START:
            chain.append(("generation_end", last_end))
    return tuple((name, ms) for name, ms in chain if abs(ms) != NEVER)


def read_row(location: int, paths: Callable[[int], Path | None]) -> Row | None:
    """The row at a location, with the lines that continue it; None if it is gone."""
    path = paths(location >> LOCATION_BITS)
    if path is None:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        data = os.pread(fd, MAX_ROW_BYTES, location & ((1 << LOCATION_BITS) - 1))
    except OSError:
        return None
    finally:
        os.close(fd)
    line, *following = data.split(b"\n")
    line = line.removesuffix(b"\r").partition(b"\0")[0]
    job = line.partition(b",")[0]
    second = glued_at(line, {job})
    if second:
        return parse_row(line[:second])
    row = parse_row(line)
    if row is None:
        return None
    more, size = [], 0
    for extra in following[:MAX_CONTINUATION_LINES]:
        size += len(extra)
        body = extra.removesuffix(b"\r")
        if size > MAX_CONTINUATION_BYTES or body.startswith(job + b",") or parse_row(body):
            break
        more.append(body)
    # The last piece is no line unless a line break follows it.
    if more and len(more) == len(following):
        more.pop()
    while more and not more[-1].strip():
        more.pop()
    if more:
        row = replace(row, content=b"\n".join((row.content, *more)))
    return row


def _event(row: Row, scope: str, aliases: StageAliases) -> TraceEvent:
    content = parse_content(row.content)
    head = content.head
    turn = head.extra.get("turn") or head.extra.get("turn_index") or ""
    found = _TURN.search((content.detail or "")[:4096])
    if not (turn.isascii() and turn.isdigit() and len(turn) < 8):
        turn = found.group(1) if found else ""
    return TraceEvent(
        unix_ms=row.unix_ms,
        scope=scope,
        status=row.status.decode("utf-8", "replace"),
        stage=head.stage,
        source=head.source,
        target=head.target,
        detail=content.detail,
        event=aliases.split_detail(content.detail or "")[0],
        turn=int(turn) if turn else None,
        turn_inferred=False,
        extra=tuple(head.extra.items()),
    )


def _distinct(events: list[TraceEvent]) -> list[TraceEvent]:
    return list(dict.fromkeys(events))


def _with_turns(events: list[TraceEvent]) -> list[TraceEvent]:
    """Events of the agent loop without a turn number get the number of rounds finished before."""
    result, rounds = [], 0
    for event in events:
        in_loop = event.stage in ("ROLLOUT_GENERATE", "ROLLOUT_TOOL")
        is_end = event.event in ("generation_finished", "generation_end") or (
            event.stage == "ROLLOUT_GENERATE"
            and any(word in (event.detail or "") for word in ("finish", "end", "complete", "done"))
        )
        if event.turn is None and in_loop:
            tool = event.stage == "ROLLOUT_TOOL" and rounds > 0
            turn = rounds - 1 if tool else rounds
            result.append(replace(event, turn=turn, turn_inferred=True))
        else:
            result.append(event)
        rounds += is_end
    return result
