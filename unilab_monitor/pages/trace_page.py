"""Trace: the milestones of one trajectory, its time as a waterfall, and all of its events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import DescendantBlur
from textual.widgets import Input

from unilab_core.telemetry.rl_trace.snapshot import Snapshot
from unilab_core.telemetry.rl_trace.trace_view import TraceEvent, TraceView
from unilab_core.telemetry.rl_trace.trajectory_view import TrajectoryView
from unilab_monitor.pages.foreign_text import literal
from unilab_monitor.pages.health_page import missing_hint
from unilab_monitor.pages.live_text import LiveText
from unilab_monitor.pages.row_table import Cells, RowTable
from unilab_monitor.pages.still_text import StillText
from unilab_monitor.pages.strokes import (
    cell,
    number,
    short_seconds,
    span,
    style_of,
    title,
    wrapped,
)
from unilab_monitor.pages.trace_messages import OpenTrace, OpenTrajectory

MAX_SHOWN_EVENTS = 1_000
MAX_SHOWN_TURNS = 24
LOST = ("FAILED", "DISCARDED", "CANCELLED")
_CHAIN_NAMES = {
    "generated": "generated",
    "dispatched": "dispatched",
    "run": "agent run",
    "generation_start": "first generation",
    "generation_end": "last generation",
    "finished": "rollout done",
    "reward": "reward",
    "sampled": "sampled",
    "logprob": "log prob",
    "ref_logprob": "ref log prob",
    "advantage": "advantage",
    "trained": "trained",
}


class TracePage(VerticalScroll, can_focus=False):
    """Enter on an event with a turn, or t, goes to the turns of the trajectory."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "turns", "turns"),
        Binding("slash", "filter", "filter"),
        Binding("g", "go", "go to id"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: Snapshot | None = None
        self._name = ""
        self._trace: TraceView | None = None
        self._trajectory: TrajectoryView | None = None
        self._asked = False

    def compose(self) -> Iterator[LiveText | StillText | Input | RowTable]:
        """Widgets from top to bottom."""
        yield StillText(id="trace-head")
        yield Input(placeholder="trajectory id: <uid>/<n>", id="trace-id", classes="line")
        yield LiveText(id="trace-chain", classes="section")
        yield LiveText(id="trace-waterfall", classes="section")
        yield StillText(id="trace-events-title", classes="section")
        yield Input(
            placeholder="only events with this text, in any column", id="trace-filter",
            classes="line",
        )  # fmt: skip
        yield RowTable(
            ("time", "+s", "stage", "turn", "from", "to", "status", "detail"),
            max_rows=24,
            id="trace-events",
        )

    def focus_first(self) -> None:
        """Put the focus where keys are useful."""
        self.query_one("#trace-events", RowTable).take_focus()

    def show(self, snapshot: Snapshot) -> None:
        """Show new figures."""
        self._snapshot = snapshot
        if self._trace is None:
            self._draw()

    def open(self, name: str) -> None:
        """The trajectory that was asked for."""
        self._name, self._asked = name, True
        self._trace = self._trajectory = None
        self._draw()

    @property
    def trajectory_name(self) -> str:
        """The trajectory that is shown or was asked for; empty: none."""
        return self._name

    @property
    def is_open_ended(self) -> bool:
        """Whether the shown trajectory may have more events."""
        if not self._name or self._trace is None:
            return bool(self._name)
        trained = any(name == "trained" for name, _ in self._trace.milestones)
        lost = any(event.status in LOST and event.scope == "A" for event in self._trace.events)
        return not (trained or lost)

    def show_trace(
        self, name: str, trace: TraceView | None, trajectory: TrajectoryView | None
    ) -> None:
        """The answer."""
        if name != self._name:
            return
        fresh = self._asked
        self._asked, self._trace, self._trajectory = False, trace, trajectory
        self._draw()
        if fresh and self.display:
            self.focus_first()
            self.scroll_home(animate=False)

    def on_resize(self) -> None:
        """Text is drawn for the width."""
        self._draw()

    def action_turns(self) -> None:
        """Go to the turns."""
        if self._name:
            self.post_message(OpenTrajectory(self._name))

    def action_filter(self) -> None:
        """Edit the filter."""
        self._edit("#trace-filter")

    def action_go(self) -> None:
        """Enter another id."""
        self._edit("#trace-id")

    def on_mount(self) -> None:
        """The lines for typing are there only while they are used."""
        for line in self.query(Input):
            line.display = False

    def on_descendant_blur(self, event: DescendantBlur) -> None:
        """Put away what is not used any more."""
        if isinstance(event.widget, Input):
            event.widget.display = event.widget.id == "trace-filter" and bool(event.widget.value)

    def _edit(self, selector: str) -> None:
        line = self.query_one(selector, Input)
        line.display = True
        self.screen.set_focus(line)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as one types."""
        event.stop()
        if event.input.id == "trace-filter":
            self._draw_events()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to an id, or from the filter to the events."""
        event.stop()
        if event.input.id == "trace-id" and event.value.strip():
            self.post_message(OpenTrace(event.value.strip()))
            self.query_one("#trace-events", RowTable).take_focus()
        elif event.input.id == "trace-filter":
            self.query_one("#trace-events", RowTable).take_focus()

    def on_row_table_selected(self, event: RowTable.Selected) -> None:
        """Drill down."""
        event.stop()
        events = self._trace.events if self._trace is not None else ()
        place = int(event.key)
        if place < len(events):
            self.post_message(OpenTrajectory(self._name, events[place].turn))

    def _draw(self) -> None:
        if not self.is_mounted:
            return
        width = max(self.content_size.width - 2, 40)
        self.query_one("#trace-head", StillText).show(self._head())
        trace = self._trace
        chain = _chain(trace, width) if trace is not None else Text()
        self.query_one("#trace-chain", LiveText).show(chain)
        fall = _waterfall(trace, self._trajectory, width) if trace is not None else Text()
        self.query_one("#trace-waterfall", LiveText).show(fall)
        self._draw_events()

    def _head(self) -> Text:
        text = Text(end="")
        if self._snapshot is not None:
            hint = missing_hint(self._snapshot, "sample")
            if hint is not None:
                text.append_text(hint).append("\n")
        text.append("Trace ", style_of("title"))
        if not self._name:
            note = "choose a trajectory on page 2, or type its id (g)"
            return text.append(note, style_of("dim"))
        text.append_text(literal(self._name, 80, "strong"))
        if self._trace is None:
            note = "  reading" if self._asked else "  no such trajectory in the sample flow"
            text.append(note, style_of("warn"))
        view = self._trajectory
        if view is not None:
            reward = "n/a" if view.reward is None else f"{view.reward:g}"
            tokens = "n/a" if view.completion_tokens is None else f"{view.completion_tokens:,}"
            text.append(
                f"  reward {reward}  {len(view.turns)} turns  {tokens} tokens  t: turns",
                style_of("value"),
            )
        elif self._trace is not None:
            text.append("  no line in the trajectory files", style_of("dim"))
        return text

    def _draw_events(self) -> None:
        trace = self._trace
        table = self.query_one("#trace-events", RowTable)
        if trace is None:
            table.fill((), _event_cells)
            self.query_one("#trace-events-title", StillText).show(title("Events"))
            return
        wanted = self.query_one("#trace-filter", Input).value.casefold()
        found = [
            (place, event)
            for place, event in enumerate(trace.events)
            if not wanted or wanted in _searched(event)
        ]
        note = f"{len(found):,} of {len(trace.events):,}, /: filter"
        note += "; italic: of the prompt or of everything"
        if trace.num_left_out:
            note += f"; {trace.num_left_out:,} more not read"
        self.query_one("#trace-events-title", StillText).show(title("Events", note))
        first = trace.events[0].unix_ms if trace.events else 0
        table.fill(
            [(str(place), (event, first)) for place, event in found[:MAX_SHOWN_EVENTS]],
            _event_cells,
        )


def _searched(event: TraceEvent) -> str:
    parts = (event.stage, event.source, event.target, event.status, event.detail or "")
    return " ".join(parts).casefold()


def _event_cells(item: tuple[TraceEvent, int]) -> Cells:
    """Cells of an event; the number is the Unix ms of the first one."""
    event, first_ms = item
    role = "value" if event.scope == "A" else "inherited"
    turn = "" if event.turn is None else f"{'~' if event.turn_inferred else ''}{event.turn}"
    detail = event.detail
    if detail is None and event.extra:
        detail = " ".join(f"{key}={value}" for key, value in event.extra)
    bad = event.status in LOST
    return (
        cell(_clock(event.unix_ms), "label" if event.scope == "A" else "inherited"),
        number(f"{(event.unix_ms - first_ms) / 1000.0:,.3f}", "dim"),
        literal(event.stage, 20, role),
        number(turn, "child"),
        literal(event.source, 20, role),
        literal(event.target, 20, role),
        literal(event.status, 10, "bad" if bad else "dim"),
        literal(detail, 300, "bad" if bad else role),
    )


def _clock(unix_ms: int) -> str:
    try:
        local = time.localtime(unix_ms / 1000.0)
    except (OverflowError, ValueError, OSError):
        return str(unix_ms)
    return time.strftime("%H:%M:%S", local) + f".{unix_ms % 1000:03d}"


def _chain(trace: TraceView, width: int) -> Text:
    text = title("Milestones")
    parts, before = [], None
    for name, unix_ms in trace.milestones:
        part = Text(end="")
        if before is not None:
            gap = (unix_ms - before) / 1000.0
            role = "bad" if gap < -0.05 else "label"
            part.append(f"─{short_seconds(gap)}→ ", style_of(role))
        part.append("● ", style_of("good" if name == "trained" else "accent"))
        part.append(_CHAIN_NAMES[name], style_of("value"))
        parts.append(part)
        before = unix_ms
    if not parts:
        return text.append("\nnone seen", style_of("dim"))
    return text.append("\n").append_text(wrapped(parts, width, " "))


def _waterfall(trace: TraceView, view: TrajectoryView | None, width: int) -> Text:
    """Times between milestones, then the turns: model (blue) and environment (green)."""
    times = trace.milestones
    text = title("Waterfall")
    if len(times) < 2 and view is None:
        return text.append("\nfewer than two milestones", style_of("dim"))
    turns = [
        turn
        for turn in (view.turns if view is not None else ())
        if turn.start_s is not None and turn.end_s is not None
    ]
    marks = [ms for _, ms in times]
    low, high = (min(marks), max(marks)) if marks else (0, 0)
    size = max(width - 45, 10)
    for (name, start), (other, end) in pairwise(times):
        label = f"{_CHAIN_NAMES[name]} → {_CHAIN_NAMES[other]}"
        _lane(text, label, (end - start) / 1000.0)
        text.append_text(span(start, end, low, high, size))
    if not turns:
        return text
    # Trajectory files may have another clock: the turns get an axis of their own.
    low_s = min(turn.start_s or 0.0 for turn in turns)
    high_s = max(turn.end_s or 0.0 for turn in turns)
    text.append("\n").append(f"turns, {short_seconds(high_s - low_s)}", style_of("dim"))
    for turn in turns[:MAX_SHOWN_TURNS]:
        start, end = turn.start_s or 0.0, turn.end_s or 0.0
        _lane(text, f"turn {turn.index}  model / environment", end - start)
        split = start + (turn.model_ms or 0.0) / 1000.0 if turn.model_ms is not None else end
        model = span(start, min(split, end), low_s, high_s, size, "accent")
        filled = len(model.plain.rstrip())
        rest = span(min(split, end), end, low_s, high_s, size, "good").plain.rstrip()
        line = Text(end="").append_text(model[:filled])
        line.append("█" * max(len(rest) - filled, 0), style_of("good"))
        text.append_text(line)
    if len(turns) > MAX_SHOWN_TURNS:
        text.append(f"\n… and {len(turns) - MAX_SHOWN_TURNS} more turns", style_of("dim"))
    return text


def _lane(text: Text, label: str, length_s: float) -> None:
    text.append("\n").append(label[:34].ljust(35), style_of("label"))
    text.append(f"{short_seconds(length_s):>9} ", style_of("value"))
