"""Data Health: what was damaged, what is foreign, and how to check the directory."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text
from textual.containers import VerticalScroll

from unilab_core.telemetry.rl_trace.damage import DAMAGE_MEANING, Damage
from unilab_core.telemetry.rl_trace.snapshot import Snapshot
from unilab_monitor.pages.foreign_text import literal
from unilab_monitor.pages.live_text import LiveText
from unilab_monitor.pages.row_table import Cells, RowTable
from unilab_monitor.pages.still_text import StillText
from unilab_monitor.pages.strokes import cell, number, style_of, title

CHECKS = (
    "VERL_TRACE_DIR is set in every worker process, not only in the launcher",
    "the training processes may write to the directory",
    "the instrumentation is loaded and fits the version of the framework",
    "every node can reach the path",
)
MAX_LISTED = 30


class HealthPage(VerticalScroll, can_focus=False):
    """Counters of damage with their meaning, and the files they come from."""

    def compose(self) -> Iterator[LiveText | StillText | RowTable]:
        """Widgets from top to bottom."""
        yield LiveText(id="health-state")
        yield RowTable(("kind", "count", "meaning"), max_rows=20, id="health-counters")
        yield StillText(id="health-files-title", classes="section")
        yield RowTable(("file", "count", "kinds"), max_rows=10, id="health-files")
        yield StillText(id="health-checks", classes="section")

    def focus_first(self) -> None:
        """Put the focus where keys are useful."""
        self.query_one("#health-counters", RowTable).take_focus()

    def show(self, snapshot: Snapshot) -> None:
        """Show new figures."""
        self.query_one("#health-state", LiveText).show(_state(snapshot))
        counts = snapshot.damage.as_dict()
        rows = sorted(counts.items(), key=lambda item: item[1] == 0)
        table = self.query_one("#health-counters", RowTable)
        table.fill([(name, (name, count)) for name, count in rows], _counter_cells)
        files = [(name, (name, damage)) for name, damage in snapshot.damaged_files]
        table = self.query_one("#health-files", RowTable)
        table.display = bool(files)
        table.fill(files, _file_cells)
        note = f"{len(files):,}" if files else "none"
        self.query_one("#health-files-title", StillText).show(title("Files with damage", note))
        self.query_one("#health-checks", StillText).show(_checks(snapshot))


def _counter_cells(item: tuple[str, int]) -> Cells:
    name, count = item
    return (
        cell(name, "warn" if count else "label"),
        number(f"{count:,}", "warn" if count else "dim"),
        cell(DAMAGE_MEANING[name], "value" if count else "dim"),
    )


def _file_cells(item: tuple[str, Damage]) -> Cells:
    name, damage = item
    kinds = {kind: count for kind, count in damage.as_dict().items() if count}
    note = ", ".join(f"{kind} {count:,}" for kind, count in kinds.items())
    return (literal(name, 60), number(f"{sum(kinds.values()):,}"), cell(note, "label"))


def missing_hint(snapshot: Snapshot, folder: str) -> Text | None:
    """One line for a page whose folder is missing."""
    if folder not in snapshot.missing_folders:
        return None
    text = Text(f"{folder}/ is missing in this directory", style_of("warn"), end="")
    text.append("  5 Data Health says what to check", style_of("dim"))
    return text


def _state(snapshot: Snapshot) -> Text:
    text = title("Data Health", sanitized_root(snapshot))
    done, size = snapshot.read_bytes, snapshot.total_bytes
    share = 100.0 * done / size if size else 100.0
    text.append(
        f"\nread {done / 1e6:,.1f} of {size / 1e6:,.1f} MB ({share:.0f} %), "
        f"{snapshot.num_rows:,} rows, {snapshot.num_trajectories:,} trajectory lines "
        f"({snapshot.num_with_flow:,} with sample flow), "
        f"{snapshot.pending_bytes:,} bytes unfinished",
        style_of("value"),
    )
    return text


def sanitized_root(snapshot: Snapshot) -> str:
    """The directory, harmless to show."""
    return literal(str(snapshot.root), 120).plain


def _checks(snapshot: Snapshot) -> Text:
    text = Text(end="")
    if snapshot.ignored:
        text.append_text(title("Foreign files, ignored", f"{len(snapshot.ignored):,}"))
        for name in snapshot.ignored[:MAX_LISTED]:
            text.append("\n  ").append_text(literal(name, 100, "dim"))
        if len(snapshot.ignored) > MAX_LISTED:
            text.append(f"\n  … and {len(snapshot.ignored) - MAX_LISTED:,} more", style_of("dim"))
        text.append("\n\n")
    text.append_text(title("How to check the directory"))
    text.append(f"\n  find {sanitized_root(snapshot)} -maxdepth 2 -type f", style_of("accent"))
    text.append(
        "\nshould list sample/<hostname>-pid<pid>.csv, trajectory/trajectory_<pid>_<time>.jsonl"
        "\nand progress/<YYYYMMDD-HH>.log. If a kind is missing, check in this order:",
        style_of("value"),
    )
    for place, check in enumerate(CHECKS, 1):
        text.append(f"\n  {place}. ", style_of("label"))
        text.append(check, style_of("value"))
    if snapshot.missing_folders:
        names = ", ".join(f"{name}/" for name in snapshot.missing_folders)
        text.append(f"\n\nmissing here: {names}", style_of("warn"))
    return text
