"""Training Progress: where the run is, how fast, and in which stage; the way into a slow step."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from rich.text import Text
from textual.containers import VerticalScroll

from unilab_core.telemetry.plain import format_duration
from unilab_core.telemetry.rl_trace.progress_figures import ProgressFigures, StageRun, StepRun
from unilab_core.telemetry.rl_trace.snapshot import Snapshot
from unilab_core.telemetry.rl_trace.step_figures import StepFigures
from unilab_monitor.pages.foreign_text import literal
from unilab_monitor.pages.health_page import missing_hint
from unilab_monitor.pages.live_text import LiveText
from unilab_monitor.pages.row_table import Cells, RowTable
from unilab_monitor.pages.still_text import StillText
from unilab_monitor.pages.strokes import (
    STATE_GLYPHS,
    STATE_STYLES,
    bar,
    cell,
    number,
    seconds,
    short_seconds,
    span,
    style_of,
    tiles,
    title,
    wrapped,
)
from unilab_monitor.pages.trace_messages import OpenFlow

SLOW_FACTOR = 1.5
"""A step this many times longer than the median is marked."""

STAGE_TRANSITIONS = {
    "generation": "buffer_wait",
    "compute reward": "reward",
    "compute log prob": "logprob",
    "compute ref log prob": "ref_logprob",
    "compute values": "advantage",
    "compute adv": "advantage",
    "update actor": "update",
    "rollout": "generation",
}
"""Stage of a progress line to the transition of the sample flow that it is about."""


class ProgressPage(VerticalScroll, can_focus=False):
    """Steps and stages. Enter on a step shows its stages, Enter on a stage its sample flow."""

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: Snapshot | None = None
        self._step: int | None = None

    def compose(self) -> Iterator[LiveText | StillText | RowTable]:
        """Widgets from top to bottom."""
        yield LiveText(id="progress-head")
        yield LiveText(id="progress-strip", classes="section")
        yield RowTable(
            ("stage", "state", "time", "runs", "share", "clock"), max_rows=13, id="progress-stages"
        )
        yield LiveText(id="progress-gantt", classes="section")
        yield StillText(title("Steps", "Enter: stages of the step"), classes="section")
        yield RowTable(
            ("step", "started", "length", "rollout", "gap", "train", "idle", "longest stage"),
            max_rows=14,
            id="progress-steps",
        )

    def focus_first(self) -> None:
        """Put the focus where keys are useful."""
        self.query_one("#progress-steps", RowTable).take_focus()

    def show(self, snapshot: Snapshot) -> None:
        """Show new figures."""
        self._snapshot = snapshot
        self._draw()

    def on_resize(self) -> None:
        """Text is drawn for the width."""
        self._draw()

    def on_row_table_selected(self, event: RowTable.Selected) -> None:
        """Drill down."""
        event.stop()
        if event.table.id == "progress-steps":
            self._step = int(event.key)
            self._draw()
            stages = self.query_one("#progress-stages", RowTable)
            stages.take_focus()
            stages.select_key(self._longest_stage() or "")
            self.scroll_home(animate=False)
        elif self._snapshot is not None:
            step = self._step
            if step is None:
                step = self._snapshot.progress.stage_step
            self.post_message(OpenFlow(step, STAGE_TRANSITIONS.get(event.key)))

    def back(self) -> bool:
        """Leave a chosen step; False if there is none."""
        if self._step is None:
            return False
        self._step = None
        self._draw()
        self.focus_first()
        return True

    def _longest_stage(self) -> str | None:
        run = self._run()
        timed = [stage for stage in run.stages if stage.duration_s is not None] if run else []
        return max(timed, key=lambda stage: stage.duration_s or 0.0).name if timed else None

    def _run(self) -> StepRun | None:
        if self._snapshot is None:
            return None
        progress = self._snapshot.progress
        wanted = progress.stage_step if self._step is None else self._step
        return next((run for run in progress.history if run.step == wanted), None)

    def _draw(self) -> None:
        snapshot = self._snapshot
        if snapshot is None or not self.is_mounted:
            return
        progress, width = snapshot.progress, max(self.content_size.width - 2, 40)
        run = self._run()
        self.query_one("#progress-head", LiveText).show(_head(snapshot, width))
        self.query_one("#progress-strip", LiveText).show(_strip(run, self._step, width))
        stages = run.stages if run is not None else ()
        self.query_one("#progress-stages", RowTable).fill(_stage_rows(stages, width), _stage_cells)
        gantt = _gantt(run, width) if run is not None else Text()
        self.query_one("#progress-gantt", LiveText).show(gantt)
        self.query_one("#progress-steps", RowTable).fill(
            _step_rows(progress, snapshot.steps), _step_cells
        )


def _head(snapshot: Snapshot, width: int) -> Text:
    progress = snapshot.progress
    hint = missing_hint(snapshot, "progress")
    text = Text(end="")
    if hint is not None:
        text.append_text(hint).append("\n")
    current = "n/a" if progress.current_step is None else f"{progress.current_step:,}"
    total = "?" if progress.total_steps is None else f"{progress.total_steps:,}"
    text.append("Step ", style_of("label")).append(f"{current} / {total}", style_of("strong"))
    if progress.pct is not None:
        text.append("  ").append_text(bar(progress.pct / 100.0, max(width - 52, 10), "accent"))
        text.append(f" {progress.pct:.1f} %", style_of("value"))
    text.append(f"  {progress.mode or 'mode n/a'}", style_of("child"))
    if progress.session > 1:
        text.append(f"  session {progress.session}", style_of("label"))
    text.append("  running" if snapshot.running else "  ended", style_of("label"))
    refined = progress.eta_refined_s
    entries = [
        ("elapsed", format_duration(progress.elapsed_s), "value"),
        ("mean step", short_seconds(progress.mean_step_s), "value"),
        ("last step", short_seconds(progress.pace_s), "value"),
        ("ETA (last step)", format_duration(progress.eta_s), "strong"),
        ("ETA (median)", format_duration(refined), "value"),
        ("trajectories/min", _rate(progress.tasks_per_min), "value"),
    ]
    if progress.throughput is not None:
        entries.append(("tokens/s", f"{progress.throughput:,.0f}", "value"))
    text.append("\n").append_text(tiles(entries, width))
    if progress.trace_every > 1:
        note = f"\none of {progress.trace_every} environments is traced"
        text.append(note, style_of("dim"))
    quiet_s = _quiet_s(snapshot)
    if quiet_s is not None and quiet_s > 60.0:
        text.append(f"\nno progress line or event for {format_duration(quiet_s)}", style_of("warn"))
    return text


def _quiet_s(snapshot: Snapshot) -> float | None:
    if snapshot.last_event_ms is None or not snapshot.running:
        return None
    return max(snapshot.now_ms - snapshot.last_event_ms, 0) / 1000.0


def _rate(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.1f}"


def _strip(run: StepRun | None, chosen: int | None, width: int) -> Text:
    if run is None:
        return title("Stages", "no step yet")
    note = "chosen, Esc: back to the current one" if chosen is not None else "current"
    if run.epoch is not None:
        note += f", epoch {run.epoch}"
    if run.batch is not None:
        note += f", batch {run.batch}"
    if run.loading:
        note += ", the trainer waits for a batch"
    text = title(f"Stages of step {run.step:,}", note)
    parts = []
    for stage in run.stages:
        role = STATE_STYLES[stage.state]
        part = Text(f"{STATE_GLYPHS[stage.state]} ", style_of(role), end="")
        part.append_text(literal(stage.name, 30, role))
        if stage.duration_s is not None:
            part.append(
                f" {_source_mark(stage)}{short_seconds(stage.duration_s)}", style_of("value")
            )
        parts.append(part)
    return text.append("\n").append_text(wrapped(parts, width, " → "))


def _source_mark(stage: StageRun) -> str:
    return "~" if stage.time_source == "anchor" else ""


def _stage_rows(
    stages: tuple[StageRun, ...], width: int
) -> list[tuple[str, tuple[StageRun, float, int]]]:
    """Items are (stage, longest of the table, width of the bars)."""
    longest = max((stage.duration_s or 0.0 for stage in stages), default=0.0)
    size = max(min(width - 58, 40), 8)
    return [(stage.name, (stage, longest, size)) for stage in stages]


def _stage_cells(item: tuple[StageRun, float, int]) -> Cells:
    stage, longest, size = item
    role = STATE_STYLES[stage.state]
    share = (stage.duration_s or 0.0) / longest if longest else 0.0
    return (
        literal(stage.name, 24, "value" if stage.occurrences else "dim"),
        cell(f"{STATE_GLYPHS[stage.state]} {stage.state}", role),
        seconds(stage.duration_s) if stage.occurrences else number("", "dim"),
        number(str(stage.occurrences or ""), "label"),
        bar(share, size, role) if stage.duration_s is not None else cell(""),
        cell(stage.time_source or "", "dim"),
    )


def _gantt(run: StepRun, width: int) -> Text:
    """Rollout, training and stages of one step over time."""
    lanes: list[tuple[str, str, list[tuple[int, int]]]] = []
    for name, window in (("rollout", run.rollout_ms), ("train", run.train_ms)):
        if window[0] is not None and window[1] is not None:
            lanes.append((name, "child", [(window[0], window[1])]))
    for stage in run.stages:
        spans = [(a, b) for a, b in stage.segments if a is not None and b is not None]
        if spans:
            lanes.append((stage.name, STATE_STYLES[stage.state], spans))
    if not lanes:
        return Text("no times for the lines of this step", style_of("dim"), end="")
    low = min(start for _, _, spans in lanes for start, _ in spans)
    high = max(end for _, _, spans in lanes for _, end in spans)
    text = title("Time line", f"{short_seconds((high - low) / 1000.0)} in all")
    size = max(width - 24, 10)
    for name, role, spans in lanes:
        text.append("\n").append_text(_padded(literal(name, 20, "label"), 22))
        line = [" "] * size
        for start, end in spans:
            mark = span(start, end, low, high, size, role).plain
            line = [new if new != " " else old for old, new in zip(line, mark, strict=True)]
        text.append("".join(line), style_of(role))
    return text


def _padded(text: Text, width: int) -> Text:
    text.append(" " * max(width - text.cell_len, 0))
    return text


_Step = tuple[StepRun, StepFigures | None, int | None, float | None]
"""(lines of a step, its sample flow, start of the first step in Unix ms, median length)"""


def _step_rows(
    progress: ProgressFigures, steps: tuple[StepFigures, ...]
) -> list[tuple[str, _Step]]:
    figures = {one.step: one for one in steps}
    lengths = [run.duration_s for run in progress.history if run.duration_s is not None]
    usual = median(lengths) if lengths else None
    first = next((run.start_ms for run in progress.history if run.start_ms is not None), None)
    return [
        (str(run.step), (run, figures.get(run.step), first, usual))
        for run in reversed(progress.history)
    ]


def _step_cells(item: _Step) -> Cells:
    run, one, first_ms, usual = item
    slow = usual is not None and (run.duration_s or 0.0) > SLOW_FACTOR * usual
    timed = [stage for stage in run.stages if stage.duration_s is not None]
    longest = max(timed, key=lambda stage: stage.duration_s or 0.0, default=None)
    started = None
    if first_ms is not None and run.start_ms is not None:
        started = (run.start_ms - first_ms) / 1000.0
    note = cell("")
    if longest is not None:
        note = literal(f"{longest.name} {short_seconds(longest.duration_s)}", 34, "label")
    return (
        number(f"{run.step:,}{' !' if slow else ''}", "bad" if slow else "value"),
        number("" if started is None else f"+{short_seconds(started)}", "dim"),
        seconds(run.duration_s, "bad" if slow else "strong"),
        seconds(one.rollout_s if one else None),
        seconds(one.gap_s if one else None),
        seconds(one.train_s if one else None),
        seconds(one.idle_s if one else None, _idle_role(one)),
        note,
    )


def _idle_role(one: StepFigures | None) -> str:
    return "warn" if one is not None and (one.idle_s or 0.0) > 0.05 else "value"
