"""What the training-progress page shows: where the run is, how fast, and in which stage.

Durations are seconds. A figure whose lines have no known time is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from unilab_core.telemetry.rl_trace.formats import OPTIONAL_STAGES, PROGRESS_STAGES
from unilab_core.telemetry.rl_trace.progress_fold import (
    NO_LINE,
    ProgressFold,
    Segment,
    Session,
    StepLines,
)
from unilab_core.telemetry.rl_trace.progress_store import RECENT_TASKS, ProgressStore
from unilab_core.telemetry.rl_trace.progress_times import Anchors, Moment, ProgressTimes

HISTORY_STEPS = 200
NEW_STEPS = 4
"""The newest steps are looked at every time: their lines still get their times."""
PACE_STEPS = 10


@dataclass(frozen=True, slots=True)
class StageRun:
    """One stage within one step."""

    name: str
    state: str
    """done, running, waiting, pending, skipped or aborted."""
    duration_s: float | None
    """Sum over its segments; so far, while running."""
    occurrences: int
    time_source: str | None
    segments: tuple[tuple[int | None, int | None], ...] = ()
    """Start and end of each in Unix ms."""


@dataclass(frozen=True, slots=True)
class StepRun:
    """One step of the current session."""

    step: int
    start_ms: int | None
    time_source: str | None
    duration_s: float | None
    """To the next header; None for the newest."""
    stages: tuple[StageRun, ...]
    rollout_ms: tuple[int | None, int | None]
    train_ms: tuple[int | None, int | None]
    train_repeats: bool
    loading: bool
    """Waiting for a batch."""
    epoch: int | None
    batch: int | None


@dataclass(frozen=True, slots=True)
class ProgressFigures:
    """Progress of the newest session."""

    mode: str | None
    session: int
    current_step: int | None
    total_steps: int | None
    completed_steps: int | None
    pct: float | None
    elapsed_s: float | None
    mean_step_s: float | None
    pace_s: float | None
    """Between the last two headers."""
    eta_s: float | None
    eta_refined_s: float | None
    stage_step: int | None
    """The step that `stages` is about."""
    stages: tuple[StageRun, ...]
    history: tuple[StepRun, ...]
    """Newest last."""
    num_tasks: int
    task_statuses: Mapping[str, int]
    tasks_per_min: float | None
    """Over the last 120 finished tasks."""
    throughput: float | None
    trace_every: int
    last_line_ms: int | None


class StepRuns:
    """Steps that are over, kept from one set of figures to the next."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[tuple[object, ...], StepRun]] = {}
        self._basis: tuple[object, ...] = ()

    def start(self, *basis: object) -> None:
        """Forget everything when what all steps depend on has changed."""
        if basis != self._basis:
            self._basis = basis
            self._kept.clear()

    def find(self, step: int, mark: tuple[object, ...]) -> StepRun | None:
        """The step if it was made from the same lines."""
        kept = self._kept.get(step)
        return kept[1] if kept is not None and kept[0] == mark else None

    def keep(self, step: int, mark: tuple[object, ...], run: StepRun) -> None:
        """Keep it, and forget one that has left the history."""
        self._kept[step] = (mark, run)
        if len(self._kept) > 2 * HISTORY_STEPS:
            del self._kept[next(iter(self._kept))]


def progress_figures(
    store: ProgressStore,
    fold: ProgressFold,
    anchors: Anchors,
    *,
    now_ms: int,
    running: bool,
    kept: StepRuns | None = None,
) -> ProgressFigures:
    """Figures from a fold that is up to date."""
    times = ProgressTimes(store, anchors)
    kept = kept or StepRuns()
    session = fold.sessions[-1]
    headers = times.headers(session.header_steps.tolist(), session.header_lines.tolist())
    kept.start(session.number, running, store.num_late, tuple(session.seen_stages))
    history = _history(session, times, dict(headers), now_ms, running, kept)
    current = session.current if session.current >= 0 else None
    total = session.total if session.total >= 0 else None
    shown = _shown_step(session)
    stages = next((one.stages for one in history if one.step == shown), ())
    completed = _completed(session)
    mean_s, pace_s, steps_s = _paces(headers)
    eta_s = refined_s = pct = None
    if current is not None and total is not None:
        pct = 100.0 * current / total if total else None
        eta_s = None if pace_s is None else max(total - current, 0) * pace_s
        refined_s = _refined_eta_s(total - (completed or 0), steps_s, headers, now_ms)
    elapsed_s, last_ms = _elapsed(fold, times, anchors, headers, now_ms if running else None)
    return ProgressFigures(
        mode=_mode(fold),
        session=session.number,
        current_step=current,
        total_steps=total,
        completed_steps=completed,
        pct=pct,
        elapsed_s=elapsed_s,
        mean_step_s=mean_s,
        pace_s=pace_s,
        eta_s=eta_s,
        eta_refined_s=refined_s,
        stage_step=shown,
        stages=stages,
        history=history,
        num_tasks=fold.num_tasks,
        task_statuses=_statuses(store),
        tasks_per_min=_task_rate(store, times),
        throughput=store.value[fold.throughput] if fold.throughput != NO_LINE else None,
        trace_every=store.trace_every,
        last_line_ms=last_ms,
    )


def _mode(fold: ProgressFold) -> str | None:
    if fold.num_disagg:
        return "disagg"
    return "colocate" if fold.num_plain_stages else None


def _shown_step(session: Session) -> int | None:
    """The current step, or the one with the newest stage lines while it has none."""
    if session.current < 0 and not session.steps:
        return None
    current = session.steps.get(session.current)
    if current is not None and current.stages:
        return session.current
    with_stages = [step for step, lines in session.steps.items() if lines.stages]
    if with_stages:
        return max(with_stages)
    return session.current if session.current >= 0 else None


def _history(
    session: Session,
    times: ProgressTimes,
    headers: dict[int, Moment],
    now_ms: int,
    running: bool,
    runs: StepRuns,
) -> tuple[StepRun, ...]:
    kept = sorted(session.steps)[-HISTORY_STEPS:]
    over = set(kept[:-NEW_STEPS]) - {session.step_of_stages()}
    result = []
    for step in kept:
        lines = session.steps[step]
        start, following = headers.get(step), headers.get(step + 1)
        mark = (start, following, *times.anchors_of(step), _mark(lines))
        found = runs.find(step, mark) if step in over else None
        if found is not None:
            result.append(found)
            continue
        length = None
        if start is not None and following is not None:
            length = max(following.unix_ms - start.unix_ms, 0) / 1000.0
        result.append(
            StepRun(
                step=step,
                start_ms=start.unix_ms if start else None,
                time_source=start.source if start else None,
                duration_s=length,
                stages=_stages(session, lines, times, now_ms, running),
                rollout_ms=times.window(lines.rollout),
                train_ms=times.window(lines.train),
                train_repeats=lines.train_repeats,
                loading=lines.load_try != NO_LINE and lines.load_done == NO_LINE and running,
                epoch=lines.epoch if lines.epoch >= 0 else None,
                batch=lines.batch if lines.batch >= 0 else None,
            )
        )
        if step in over:
            runs.keep(step, mark, result[-1])
    return tuple(result)


def _mark(lines: StepLines) -> tuple[object, ...]:
    """What changes when a step gets another line."""
    stages = tuple(
        (name, len(segments), *segments[-1]) for name, segments in lines.stages.items() if segments
    )
    windows = (*lines.rollout, *lines.train, lines.train_repeats)
    return (*stages, *windows, lines.load_try, lines.load_done, lines.epoch, lines.batch)


def _stages(
    session: Session, lines: StepLines, times: ProgressTimes, now_ms: int, running: bool
) -> tuple[StageRun, ...]:
    known = [
        name for name in PROGRESS_STAGES if name != "generation" or name in session.seen_stages
    ]
    names = known + [name for name in session.seen_stages if name not in known]
    runs = [_stage_run(session, lines, name, times, now_ms, running) for name in names]
    over = lines.step != session.step_of_stages() or not running or _step_over(session, lines)
    begun = [run.occurrences > 0 for run in runs]
    result, waiting_given = [], over or any(run.state == "running" for run in runs)
    for place, run in enumerate(runs):
        if begun[place]:
            result.append(run)
            continue
        optional = run.name in OPTIONAL_STAGES
        if over or (optional and any(begun[place + 1 :])):
            state = "skipped"
        elif (
            not waiting_given
            and any(begun[:place])
            and not any(begun[place + 1 :])
            and (not optional or run.name in session.seen_stages)
        ):
            state, waiting_given = "waiting", True
        else:
            state = "pending"
        result.append(StageRun(run.name, state, None, 0, None))
    return tuple(result)


def _stage_run(
    session: Session,
    lines: StepLines,
    name: str,
    times: ProgressTimes,
    now_ms: int,
    running: bool,
) -> StageRun:
    segments = lines.stages.get(name, [])
    if not segments:
        return StageRun(name, "pending", None, 0, None)
    open_segment = session.open.get(name)
    is_open = any(segment is open_segment for segment in segments) and running
    closed = any(segment[1] != NO_LINE for segment in segments)
    state = "running" if is_open else "done" if closed else "aborted"
    if not is_open and segments[-1][1] == NO_LINE:
        state = "aborted"
    total_ms, complete, sources, spans = 0, True, set(), []
    for segment in segments:
        start, end = _segment_times(times, lines.step, name, segment)
        spans.append((start.unix_ms if start else None, end.unix_ms if end else None))
        end_ms = end.unix_ms if end else None
        if end_ms is None and is_open and segment is open_segment:
            end_ms = now_ms
        if start is None or end_ms is None:
            complete = complete and segment[1] == NO_LINE and segment is not open_segment
            continue
        sources.add(start.source if end is None else _weaker(start.source, end.source))
        total_ms += max(end_ms - start.unix_ms, 0)
    return StageRun(
        name=name,
        state=state,
        duration_s=total_ms / 1000.0 if sources and complete and state != "aborted" else None,
        occurrences=len(segments),
        time_source=sorted(sources)[0] if sources else None,
        segments=tuple(spans),
    )


def _segment_times(
    times: ProgressTimes, step: int, name: str, segment: Segment
) -> tuple[Moment | None, Moment | None]:
    return times.at(segment[0]), times.stage_end(step, name, segment[1])


def _weaker(one: str, other: str) -> str:
    order = ("anchor", "arrival", "exact")
    return min(one, other, key=order.index)


def _completed(session: Session) -> int | None:
    """Steps known to be over: the one before the newest header, or that one too at its end."""
    if session.current < 0:
        return None
    lines = session.steps.get(session.current)
    over = lines is not None and _step_over(session, lines)
    return session.current if over else session.current - 1


def _step_over(session: Session, lines: StepLines) -> bool:
    """Whether its metrics or synchronisation have ended and no stage runs."""
    ended = any(
        segments and segments[-1][1] != NO_LINE
        for name, segments in lines.stages.items()
        if name in ("record metrics", "sync params")
    )
    return ended and not session.open


def _paces(
    headers: list[tuple[int, Moment]],
) -> tuple[float | None, float | None, list[float]]:
    """Mean step, last step, and the newest step lengths, in seconds; jumps are left out."""
    if len(headers) < 2:
        return None, None, []
    steps = np.array([step for step, _ in headers])
    when_s = np.array([moment.unix_ms for _, moment in headers]) / 1000.0
    gaps, lengths = np.diff(steps), np.diff(when_s)
    plain = lengths[gaps == 1]
    mean_s = float(plain.mean()) if len(plain) else None
    pace_s = float(lengths[-1] / max(gaps[-1], 1))
    return mean_s, pace_s, plain[-PACE_STEPS:].tolist()


def _refined_eta_s(
    remaining: int, steps_s: list[float], headers: list[tuple[int, Moment]], now_ms: int
) -> float | None:
    if not steps_s:
        return None
    in_current_s = max(now_ms - headers[-1][1].unix_ms, 0) / 1000.0
    return max(0.0, remaining * float(np.median(steps_s)) - in_current_s)


def _elapsed(
    fold: ProgressFold,
    times: ProgressTimes,
    anchors: Anchors,
    headers: list[tuple[int, Moment]],
    now_ms: int | None,
) -> tuple[float | None, int | None]:
    """Seconds over all sessions, the last one to now (None: it has ended); newest time."""
    total_ms, last_ms, known = 0, None, False
    for session in fold.sessions:
        if session.first == NO_LINE:
            continue
        newest = session is fold.sessions[-1]
        ends = times.ends_of(fold.order, session.first, session.last)
        found = [] if ends is None else list(ends)
        if newest and headers:
            found += [headers[0][1].unix_ms, headers[-1][1].unix_ms]
        if anchors.span is not None and len(fold.sessions) == 1:
            found += anchors.span
        if newest and found:
            last_ms = max(found)
            found += [] if now_ms is None else [now_ms]
        if found:
            total_ms, known = total_ms + max(found) - min(found), True
    if not known and anchors.span is not None:
        last_ms = anchors.span[1]
        total_ms, known = (now_ms or last_ms) - anchors.span[0], True
    return (total_ms / 1000.0 if known else None), last_ms


def _statuses(store: ProgressStore) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for file in store.files.values():
        counts.update(file.statuses)
    return dict(sorted(counts.items()))


def recent_tasks(store: ProgressStore) -> list[tuple[str, int]]:
    """(uid, index) of the newest tasks, for which reward times are wanted as anchors."""
    newest = [file.tasks for _, file in sorted(store.files.items())][-3:]
    return [(task.uid, task.index) for tasks in newest for task in tasks]


def _task_rate(store: ProgressStore, times: ProgressTimes) -> float | None:
    tasks = [task for _, file in sorted(store.files.items()) for task in file.tasks]
    moments = [times.task(one.uid, one.index, one.line) for one in tasks[-RECENT_TASKS:]]
    when = sorted(moment.unix_ms for moment in moments if moment is not None)
    if len(when) < 2 or when[-1] == when[0]:
        return None
    return 60_000.0 * (len(when) - 1) / (when[-1] - when[0])
