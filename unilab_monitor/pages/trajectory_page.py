"""Trajectory: reward, times and tokens; each turn with what the model did and what came back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from unilab_core.telemetry.rl_trace.snapshot import Snapshot
from unilab_core.telemetry.rl_trace.trajectory_index import TrajectoryRow
from unilab_core.telemetry.rl_trace.trajectory_view import TrajectoryView, TurnView
from unilab_monitor.pages.foreign_text import literal, literal_block
from unilab_monitor.pages.health_page import missing_hint
from unilab_monitor.pages.row_table import Cells, RowTable
from unilab_monitor.pages.still_text import StillText
from unilab_monitor.pages.strokes import (
    number,
    seconds,
    short_seconds,
    style_of,
    tiles,
    title,
)
from unilab_monitor.pages.trace_messages import OpenTrajectory

SHORT_LINES = 6
LONG_LINES = 400


class TrajectoryPage(VerticalScroll, can_focus=False):
    """Enter on a turn unfolds its texts; brackets go to the next slower or faster one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "step(-1)", "slower"),
        Binding("right_square_bracket", "step(1)", "faster"),
        Binding("r", "raw", "raw JSON"),
        Binding("l", "list", "list"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: Snapshot | None = None
        self._name = ""
        self._view: TrajectoryView | None = None
        self._raw = ""
        self._turn: int | None = None
        self._unfolded = False
        self._show_raw = False
        self._asked = False

    def compose(self) -> Iterator[StillText | RowTable]:
        """Widgets from top to bottom."""
        yield StillText(id="trajectory-head")
        yield RowTable(
            ("turn", "time", "model", "env", "in", "out", "end", "model / env"),
            max_rows=10,
            id="trajectory-turns",
        )
        yield StillText(id="trajectory-turn", classes="section")
        yield StillText(id="trajectory-raw", classes="section")
        yield StillText(title("Longest trajectories", "Enter: open"), classes="section")
        yield RowTable(
            ("trajectory", "time", "reward", "turns", "step", "tokens", "bytes"),
            max_rows=16,
            id="trajectory-list",
        )

    def focus_first(self) -> None:
        """Put the focus where keys are useful."""
        wanted = "#trajectory-turns" if self._view is not None else "#trajectory-list"
        self.query_one(wanted, RowTable).take_focus()

    def show(self, snapshot: Snapshot) -> None:
        """Show new figures."""
        self._snapshot = snapshot
        if not self.is_mounted:
            return
        rows = [(one.id, one) for one in snapshot.slow_trajectories]
        self.query_one("#trajectory-list", RowTable).fill(rows, _list_cells)
        if self._view is None:
            self._draw()

    @property
    def trajectory_name(self) -> str:
        """The trajectory that is shown or was asked for; empty: none."""
        return self._name

    def open(self, name: str, turn: int | None) -> None:
        """The trajectory that was asked for."""
        self._turn, self._show_raw = turn, False
        if name != self._name or self._view is None:
            self._name, self._view, self._asked = name, None, True
        else:
            self._asked = True
        self._draw()

    def show_trajectory(self, name: str, view: TrajectoryView | None, raw: str) -> None:
        """The answer."""
        if name != self._name:
            return
        fresh = self._asked
        self._view, self._raw, self._asked = view, raw, False
        if view is not None and (self._turn is None or not self._current()):
            self._turn = view.turns[0].index if view.turns else None
        self._draw()
        if fresh and view is not None and self.display:
            table = self.query_one("#trajectory-turns", RowTable)
            table.select_key(str(self._turn))
            table.take_focus()
            self.scroll_home(animate=False)

    def on_resize(self) -> None:
        """Text is drawn for the width."""
        self._draw()

    def action_step(self, by: int) -> None:
        """Open the trajectory that is next by total time."""
        listed = self._snapshot.slow_trajectories if self._snapshot is not None else ()
        names = [one.id for one in listed]
        at = names.index(self._name) + by if self._name in names else 0
        if 0 <= at < len(names):
            self.post_message(OpenTrajectory(names[at]))

    def action_raw(self) -> None:
        """Show or hide the JSON text."""
        self._show_raw = not self._show_raw
        self._draw()

    def action_list(self) -> None:
        """Go to the list."""
        self.query_one("#trajectory-list", RowTable).take_focus()

    def on_row_table_highlighted(self, event: RowTable.Highlighted) -> None:
        """The texts follow the cursor."""
        event.stop()
        if event.table.id == "trajectory-turns":
            self._turn = int(event.key)
            self._draw_turn()

    def on_row_table_selected(self, event: RowTable.Selected) -> None:
        """Unfold a turn, or open a trajectory."""
        event.stop()
        if event.table.id == "trajectory-turns":
            self._unfolded = not self._unfolded
            self._draw_turn()
        else:
            self.post_message(OpenTrajectory(event.key))

    def _current(self) -> TurnView | None:
        turns = self._view.turns if self._view is not None else ()
        return next((turn for turn in turns if turn.index == self._turn), None)

    def _draw(self) -> None:
        if not self.is_mounted:
            return
        width = max(self.content_size.width - 2, 40)
        self.query_one("#trajectory-head", StillText).show(self._head(width))
        turns = self._view.turns if self._view is not None else ()
        self.query_one("#trajectory-turns", RowTable).fill(_turn_rows(turns, width), _turn_cells)
        self._draw_turn()
        raw = self.query_one("#trajectory-raw", StillText)
        raw.display = self._show_raw and bool(self._raw)
        if raw.display:
            text = title("JSON").append("\n").append_text(literal_block(self._raw, "label"))
            raw.update(text)

    def _draw_turn(self) -> None:
        turn = self._current()
        widget = self.query_one("#trajectory-turn", StillText)
        widget.display = turn is not None
        if turn is not None:
            widget.show(_turn_text(turn, LONG_LINES if self._unfolded else SHORT_LINES))

    def _head(self, width: int) -> Text:
        text = Text(end="")
        if self._snapshot is not None:
            hint = missing_hint(self._snapshot, "trajectory")
            if hint is not None:
                text.append_text(hint).append("\n")
        text.append("Trajectory ", style_of("title"))
        view = self._view
        if not self._name:
            return text.append("choose one below, or on page 3 (t)", style_of("dim"))
        text.append_text(literal(self._name, 80, "strong"))
        if view is None:
            note = "  reading" if self._asked else "  no line in the trajectory files (yet)"
            return text.append(note, style_of("warn"))
        if not view.inner_ok:
            text.append("  the inner JSON is damaged, r: its text", style_of("bad"))
        for flag in view.flags:
            text.append(f"  {flag}", style_of("warn"))
        return (
            text.append("\n")
            .append_text(tiles(_head_tiles(view), width))
            .append_text(_prompt(view))
        )


def _head_tiles(view: TrajectoryView) -> list[tuple[str, str, str]]:
    committed = "n/a"
    if view.completed_s is not None:
        try:
            committed = time.strftime("%m-%d %H:%M:%S", time.localtime(view.completed_s))
        except (OverflowError, ValueError, OSError):
            committed = f"{view.completed_s:g}"
    tokens = f"{_count(view.prompt_tokens)} / {_count(view.completion_tokens)}"
    return [
        ("reward", "n/a" if view.reward is None else f"{view.reward:g}", "strong"),
        ("turns", str(len(view.turns)), "value"),
        ("total", _ms(view.total_ms), "strong"),
        ("model", _ms(view.model_ms), "accent"),
        ("environment", _ms(view.env_ms), "good"),
        ("outside turns", _ms(view.unattributed_ms), "value"),
        ("tokens in / out", tokens, "value"),
        ("step", _count(view.global_step), "value"),
        ("committed", committed, "value"),
        ("of a group of", _count(view.n_samples), "value"),
    ]


def _prompt(view: TrajectoryView) -> Text:
    if not view.initial_prompt:
        return Text(end="")
    text = Text("\nprompt ", style_of("label"), end="")
    return text.append_text(literal(view.initial_prompt, 300))


def _turn_rows(
    turns: tuple[TurnView, ...], width: int
) -> list[tuple[str, tuple[TurnView, float, int]]]:
    """Items are (turn, longest of the table in ms, width of the bars)."""
    longest = max((turn.total_ms or 0.0 for turn in turns), default=0.0)
    size = max(min(width - 60, 40), 8)
    return [(str(turn.index), (turn, longest, size)) for turn in turns]


def _turn_cells(item: tuple[TurnView, float, int]) -> Cells:
    turn, longest, size = item
    return (
        number(str(turn.index), "warn" if turn.flags else "value"),
        seconds(_s(turn.total_ms), "strong"),
        seconds(_s(turn.model_ms), "accent"),
        seconds(_s(turn.env_ms), "good"),
        number(_count(turn.prompt_tokens), "label"),
        number(_count(turn.completion_tokens), "label"),
        literal(turn.finish_reason, 8, "label"),
        _shares(turn, longest, size),
    )


def _shares(turn: TurnView, longest_ms: float, width: int) -> Text:
    if not longest_ms:
        return Text("", end="")
    model = round((turn.model_ms or 0.0) / longest_ms * width)
    env = round((turn.env_ms or 0.0) / longest_ms * width)
    text = Text("█" * min(model, width), style_of("accent"), end="")
    return text.append("█" * max(min(env, width - model), 0), style_of("good"))


def _turn_text(turn: TurnView, max_lines: int) -> Text:
    text = title(f"Turn {turn.index}", "Enter: fold or unfold the texts")
    for flag in turn.flags:
        text.append(f"  {flag}", style_of("warn"))
    engine = (
        ("queue", turn.queue_ms),
        ("time to first token", turn.ttft_ms),
        ("prefill", turn.prefill_ms),
        ("decode", turn.decode_ms),
        ("other", turn.engine_other_ms),
    )
    if any(value is not None for _, value in engine):
        text.append("\n")
        for name, value in engine:
            text.append(f"{name} ", style_of("label")).append(f"{_ms(value)}  ", style_of("value"))
    for call in turn.tool_calls:
        role = "bad" if call.ok is False else "child"
        text.append("\ntool ", style_of("label")).append_text(literal(call.name, 40, role))
        text.append(" ").append_text(literal(call.args, 200, "value"))
        text.append(f" {_ms(call.ms)}", style_of("label"))
        if call.error is not None:
            text.append(" ").append_text(literal(call.error, 200, "bad"))
    for label, body, role in (
        ("output", turn.completion, "value"),
        ("feedback", turn.observation, "good"),
    ):
        text.append(f"\n{label}\n", style_of("label"))
        text.append_text(literal_block(body, role, max_lines))
    return text


def _list_cells(one: TrajectoryRow) -> Cells:
    reward = "n/a" if one.reward is None else f"{one.reward:g}"
    return (
        literal(one.id, 48, "bad" if one.inner_bad else "value"),
        seconds(_s(one.total_ms), "strong"),
        number(reward),
        number(_count(one.num_turns), "label"),
        number(_count(one.step), "label"),
        number(_count(one.completion_tokens), "label"),
        number(f"{one.num_bytes:,}", "dim"),
    )


def _ms(value: float | None) -> str:
    return short_seconds(_s(value))


def _s(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1000.0


def _count(value: int | None) -> str:
    return "n/a" if value is None else f"{value:,}"
