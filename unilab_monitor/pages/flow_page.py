"""Sample Flow: from generation to training, where trajectories wait or leave, and the slow ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.text import Text
from textual.containers import VerticalScroll

from unilab_core.telemetry.rl_trace.flow_figures import (
    FEW_FOR_P99,
    Distribution,
    FlowFigures,
    Stuck,
)
from unilab_core.telemetry.rl_trace.flow_parts import TRANSITIONS
from unilab_core.telemetry.rl_trace.snapshot import Snapshot
from unilab_core.telemetry.rl_trace.step_figures import StepFigures
from unilab_monitor.pages.foreign_text import literal
from unilab_monitor.pages.health_page import missing_hint
from unilab_monitor.pages.live_text import LiveText
from unilab_monitor.pages.row_table import Cells, RowTable
from unilab_monitor.pages.still_text import StillText
from unilab_monitor.pages.strokes import (
    bar,
    cell,
    number,
    seconds,
    short_seconds,
    style_of,
    tiles,
    title,
)
from unilab_monitor.pages.trace_messages import OpenTrace

FIRST_TRANSITION = "e2e"
MAX_STEPS = 500
_EXIT_NAMES = {
    "not-dispatched": "undispatched",
    "generating": "generating",
    "awaiting-sampling": "to sample",
    "awaiting-training": "to train",
}


class FlowPage(VerticalScroll, can_focus=False):
    """Enter on a transition goes to its slowest trajectories, Enter on one to its trace."""

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: Snapshot | None = None
        self._step: int | None = None
        self._of_step: Mapping[str, Distribution] | None = None

    def compose(self) -> Iterator[LiveText | StillText | RowTable]:
        """Widgets from top to bottom."""
        yield LiveText(id="flow-head")
        yield LiveText(id="flow-columns", classes="section")
        yield LiveText(id="flow-stages-title", classes="section")
        yield RowTable(
            ("transition", "n", "avg", "P50", "P90", "P99", "max", "P50 to max"),
            max_rows=12,
            id="flow-transitions",
        )
        yield LiveText(id="flow-slowest-title", classes="section")
        yield RowTable(("trajectory", "time", ""), max_rows=5, id="flow-slowest")
        yield StillText(title("In flight", "longest idle first; Enter: trace"), classes="section")
        yield RowTable(("trajectory", "waits at", "idle", "turns"), max_rows=8, id="flow-stuck")
        yield StillText(title("Steps", "seconds"), classes="section")
        yield RowTable(
            (
                "step",
                "trajs",
                "prompts",
                "rollout",
                "gap",
                "train",
                "idle",
                "in buffer P50",
                "rollout P50",
            ),
            max_rows=10,
            id="flow-steps",
        )
        yield LiveText(id="flow-rest", classes="section")

    def focus_first(self) -> None:
        """Put the focus where keys are useful."""
        self.query_one("#flow-transitions", RowTable).take_focus()

    def show(self, snapshot: Snapshot) -> None:
        """Show new figures."""
        self._snapshot = snapshot
        self._draw()

    def open_step(self, step: int | None, transition: str | None) -> None:
        """Restrict the transitions to a step, whose figures follow, and choose one."""
        self._step, self._of_step = step, None
        self._draw()
        table = self.query_one("#flow-transitions", RowTable)
        table.select_key(transition or FIRST_TRANSITION)
        table.take_focus()

    def show_step(self, step: int, transitions: Mapping[str, Distribution]) -> None:
        """Figures of the chosen step."""
        if step == self._step:
            self._of_step = transitions
            self._draw()

    @property
    def step(self) -> int | None:
        """The step that the transitions are restricted to."""
        return self._step

    def back(self) -> bool:
        """Leave the chosen step; False if there is none."""
        if self._step is None:
            return False
        self._step = self._of_step = None
        self._draw()
        return True

    def on_resize(self) -> None:
        """Text is drawn for the width."""
        self._draw()

    def on_row_table_highlighted(self, event: RowTable.Highlighted) -> None:
        """The slowest trajectories follow the cursor."""
        event.stop()
        if event.table.id == "flow-transitions":
            self._draw_slowest()

    def on_row_table_selected(self, event: RowTable.Selected) -> None:
        """Drill down."""
        event.stop()
        if event.table.id == "flow-transitions":
            self.query_one("#flow-slowest", RowTable).take_focus()
        elif event.table.id in ("flow-slowest", "flow-stuck"):
            self.post_message(OpenTrace(event.key))

    def _transitions(self) -> Mapping[str, Distribution]:
        if self._snapshot is None:
            return {}
        if self._step is not None:
            return self._of_step or {name: Distribution() for name, _, _ in TRANSITIONS}
        return self._snapshot.flow.transitions

    def _draw(self) -> None:
        snapshot = self._snapshot
        if snapshot is None or not self.is_mounted:
            return
        width = max(self.content_size.width - 2, 40)
        self.query_one("#flow-head", LiveText).show(_head(snapshot, width))
        self.query_one("#flow-columns", LiveText).show(_columns(snapshot.flow, width))
        note = "Enter: slowest trajectories"
        if self._step is not None:
            note = f"step {self._step:,} only, Esc: all steps"
        self.query_one("#flow-stages-title", LiveText).show(title("Time per transition", note))
        transitions = self._transitions()
        self.query_one("#flow-transitions", RowTable).fill(
            _transition_rows(transitions, width), _transition_cells
        )
        self._draw_slowest()
        self.query_one("#flow-stuck", RowTable).fill(
            [(one.id, one) for one in snapshot.flow.stuck], _stuck_cells
        )
        self.query_one("#flow-steps", RowTable).fill(
            [(str(one.step), one) for one in reversed(snapshot.steps[-MAX_STEPS:])], _step_cells
        )
        self.query_one("#flow-rest", LiveText).show(_rest(snapshot, width))

    def _draw_slowest(self) -> None:
        name = self.query_one("#flow-transitions", RowTable).selected_key() or FIRST_TRANSITION
        found = self._transitions().get(name, Distribution())
        head = title(f"Slowest in {name}", "Enter: trace")
        self.query_one("#flow-slowest-title", LiveText).show(head)
        longest = found.max or 0.0
        rows = [(one, (one, value, longest)) for one, value in found.slowest]
        self.query_one("#flow-slowest", RowTable).fill(rows, _slowest_cells)


def _head(snapshot: Snapshot, width: int) -> Text:
    flow, totals = snapshot.flow, snapshot.flow.totals
    text = Text(end="")
    hint = missing_hint(snapshot, "sample")
    if hint is not None:
        text.append_text(hint).append("\n")
    text.append("job ", style_of("label")).append_text(literal(snapshot.job, 48, "strong"))
    if len(snapshot.jobs) > 1:
        text.append(f"  1 of {len(snapshot.jobs)}, j: next", style_of("dim"))
    text.append(f"  {snapshot.num_rows:,} rows", style_of("label"))
    if not snapshot.complete:
        share = 100.0 * snapshot.read_bytes / max(snapshot.total_bytes, 1)
        text.append(f"  reading, {share:.0f} %", style_of("warn"))
    text.append("\n").append_text(
        tiles(
            [
                ("trajectories", f"{totals['trajs']:,}", "strong"),
                ("trained", f"{totals['trained']:,}", "good"),
                ("sampled", f"{totals['sampled']:,}", "value"),
                ("in flight", f"{totals['in_flight']:,}", "accent"),
                ("end to end P50", short_seconds(flow.transitions["e2e"].p50), "value"),
                ("in buffer P50", short_seconds(flow.transitions["buffer_wait"].p50), "value"),
            ],
            width,
        )
    )
    return text


def _columns(flow: FlowFigures, width: int) -> Text:
    """Five columns with what left or waits below, then the funnel."""
    size = max(width // 5, 15)
    names, counts, bars = Text(end=""), Text(end=""), Text(end="")
    first = max(flow.columns[0][1], 1)
    for place, (name, count) in enumerate(flow.columns):
        last = place == len(flow.columns) - 1
        names.append(name.ljust(size - 2), style_of("label")).append("  ")
        counts.append(f"{count:,}".ljust(size - 2), style_of("good" if last else "strong"))
        counts.append("  " if last else "▶ ", style_of("rule"))
        bars.append_text(bar(count / first, size - 2, "good" if last else "bar")).append("  ")
    text = title("Flow", f"{flow.totals['uids']:,} prompts")
    text.append("\n").append_text(names).append("\n").append_text(counts)
    text.append("\n").append_text(bars).append("\n")
    text.append_text(_exits(flow, size))
    return text.append("\n").append_text(_funnel(flow, width))


def _exits(flow: FlowFigures, size: int) -> Text:
    first, second = Text(end=""), Text(end="")
    for one in flow.exits:
        waiting = one.count - one.failed - one.discarded
        first.append(f"└ {_EXIT_NAMES[one.name]}"[: size - 1].ljust(size), style_of("dim"))
        parts = [(waiting, "", "accent" if waiting else "dim")]
        parts += [(one.failed, " failed", "bad"), (one.discarded, " dropped", "bad")]
        used = 0
        for count, what, role in parts:
            if not (count or role != "bad"):
                continue
            note = f"{', ' if used else '  '}{count:,}{what}"[: size - used]
            second.append(note, style_of(role))
            used += len(note)
        second.append(" " * (size - used))
    return first.append("\n").append_text(second)


def _funnel(flow: FlowFigures, width: int) -> Text:
    size = max(min(width - 34, 60), 10)
    text = Text(end="")
    for place, one in enumerate(flow.funnel):
        text.append("\n" if place else "").append(f"{one.level:9}", style_of("label"))
        text.append(f"{one.count:>11,} ", style_of("value"))
        share = "n/a" if one.pct is None else f"{one.pct:.1f} %"
        text.append(f"{share:>8} ", style_of("dim"))
        text.append_text(bar((one.pct or 0.0) / 100.0, size))
    return text


def _slowest_cells(item: tuple[str, float, float]) -> Cells:
    """Cells of (trajectory, seconds, longest of the table)."""
    name, value, longest = item
    share = value / longest if longest else 0.0
    return (literal(name, 48), seconds(value, "strong"), bar(share, 20, "warn"))


_Transition = tuple[str, Distribution, float, int]
"""(name, figures, longest of the table, width of the bars)"""


def _transition_rows(
    transitions: Mapping[str, Distribution], width: int
) -> list[tuple[str, _Transition]]:
    longest = max((one.max or 0.0 for one in transitions.values()), default=0.0)
    size = max(min(width - 78, 40), 6)
    return [(name, (name, one, longest, size)) for name, one in transitions.items()]


def _transition_cells(item: _Transition) -> Cells:
    name, one, longest, size = item
    few = 0 < one.n < FEW_FOR_P99
    spread = Text("", end="")
    if one.p50 is not None and one.max is not None and longest:
        spread = _spread(one.p50 / longest, one.max / longest, size)
    p99 = number("n/a", "dim")
    if one.p99 is not None:
        p99 = number(short_seconds(one.p99) + ("*" if few else ""), "value")
    return (
        cell(name, "strong" if name == "e2e" else "value"),
        number(f"{one.n:,}", "label" if one.n else "dim"),
        seconds(one.avg),
        seconds(one.p50),
        seconds(one.p90),
        p99,
        seconds(one.max, "warn" if (one.max or 0.0) > 0.0 else "value"),
        spread,
    )


def _spread(low: float, high: float, width: int) -> Text:
    """The median as a bar, then a thin line to the maximum."""
    text = Text(end="")
    full, end = round(low * width), max(round(high * width), 1)
    text.append("█" * full, style_of("bar"))
    return text.append("─" * max(end - full, 0), style_of("warn"))


def _stuck_cells(one: Stuck) -> Cells:
    return (
        literal(one.id, 48),
        cell(one.milestone.replace("-", " "), "accent"),
        seconds(None if one.idle_s is None else float(one.idle_s), "warn"),
        number(str(one.turns), "label"),
    )


def _step_cells(one: StepFigures) -> Cells:
    return (
        number(f"{one.step:,}"),
        number(f"{one.trajs:,}"),
        number(f"{one.samples:,}"),
        seconds(one.rollout_s),
        seconds(one.gap_s),
        seconds(one.train_s),
        seconds(one.idle_s, "warn" if (one.idle_s or 0.0) > 0.05 else "value"),
        seconds(one.buffer_wait_p50_s),
        seconds(one.rollout_p50_s),
    )


def _rest(snapshot: Snapshot, width: int) -> Text:
    """Waste, loss, staleness, turns and stages."""
    flow = snapshot.flow
    text = title("Worth of the work")
    idle_pct = snapshot.trainer_idle_pct
    groups = "n/a" if flow.groups_complete is None else f"{flow.groups_complete:,}"
    guess = "~" if flow.undispatched_estimated else ""
    text.append("\n").append_text(
        tiles(
            [
                ("trained on", short_seconds(flow.useful_s), "good"),
                ("wasted", short_seconds(flow.wasted_s), "bad" if flow.wasted_s else "value"),
                ("lost", _pct(flow.loss_pct), "bad" if flow.loss_pct else "value"),
                ("trainer idle", _pct(idle_pct), "warn" if (idle_pct or 0) > 1 else "value"),
                ("rollout idle", short_seconds(flow.rollout_idle_s), "value"),
                ("turns P50 / max", _turns(flow), "value"),
                ("groups complete", groups, "value"),
                ("not dispatched", f"{guess}{flow.undispatched:,}", "value"),
            ],
            width,
        )
    )
    lag = flow.staleness
    unit = "weight versions" if lag.kind == "version" else "steps"
    text.append("\n\n").append_text(title("Staleness", f"{unit} between generation and training"))
    most = max(lag.lag.values(), default=0)
    for value, count in sorted(lag.lag.items())[:12]:
        text.append(f"\n{value:>4} ", style_of("label")).append(f"{count:>9,} ", style_of("value"))
        text.append_text(bar(count / most, min(width - 20, 40), "bar" if value <= 1 else "warn"))
    if not lag.lag:
        text.append("\nn/a", style_of("dim"))
    text.append("\n\n").append_text(title("Rows per stage", "* no alias: place and length P50"))
    for one in flow.stages[:40]:
        text.append("\n").append_text(literal(one.stage or "(none)", 28, "value"))
        text.append(" " * max(30 - len(one.stage or "(none)"), 1))
        text.append(f"{one.rows:>11,}", style_of("label"))
        if not one.known:
            place = f"  * +{short_seconds(one.offset_p50_s)}, {short_seconds(one.length_p50_s)}"
            text.append(place, style_of("warn"))
    return text


def _pct(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1f} %"


def _turns(flow: FlowFigures) -> str:
    turns = flow.turns
    if turns.p50 is None or turns.max is None:
        return "n/a"
    return f"{turns.p50:g} / {turns.max:g}"
