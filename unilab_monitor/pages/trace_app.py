"""The pages as an application of their own, and the machine-readable answer for a directory."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.theme import Theme
from textual.widgets import Footer

from unilab_core.telemetry.plain import format_count, format_duration, sanitize
from unilab_core.telemetry.rl_trace.document import document
from unilab_core.telemetry.rl_trace.reader import ReaderSettings, TraceReader
from unilab_core.telemetry.rl_trace.snapshot import Snapshot
from unilab_core.telemetry.rl_trace.state_file import state_path
from unilab_monitor.pages.trace_pages import TracePages, page_names

EXIT_OK, EXIT_NOTHING = 0, 6
THEME = Theme(
    name="unilab-trace",
    primary="#8ab8ff",
    secondary="#5f9ea0",
    accent="#8ab8ff",
    foreground="#dde3ea",
    background="#10141a",
    surface="#10141a",
    panel="#1a2029",
    success="#86c98b",
    warning="#e3bd6f",
    error="#ef7b80",
    dark=True,
)


class TraceApp(App[None]):
    """One trace directory in a terminal."""

    TITLE = "RL trace"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False),
        # Also while nothing has the focus.
        *(
            Binding(str(place), f"page({name!r})", show=False)
            for place, name in enumerate(page_names(), 1)
        ),
    ]

    def __init__(self, root: Path, settings: ReaderSettings | None = None) -> None:
        super().__init__()
        self._root = root
        self._settings = settings

    def compose(self) -> ComposeResult:
        """The pages and the keys."""
        yield TracePages(self._root, self._settings)
        yield Footer()

    def on_mount(self) -> None:
        """Colours."""
        self.register_theme(THEME)
        self.theme = THEME.name

    def action_page(self, name: str) -> None:
        """Show a page."""
        self.query_one(TracePages).action_page(name)


def run_trace_app(path: Path, settings: ReaderSettings | None = None) -> int:
    """Show a trace directory until the user leaves; the exit code."""
    app = TraceApp(path, settings)
    app.run()
    # Textual swallows exceptions of the application: only its return code tells.
    return app.return_code or EXIT_OK


def main_once(
    path: Path,
    json: bool = True,
    settings: ReaderSettings | None = None,
) -> int:
    """Read everything once and print the figures: one JSON line, or a few plain lines."""
    if not path.is_dir():
        print(f"not a trace directory: {sanitize(str(path))}", file=sys.stderr)
        return EXIT_NOTHING
    reader = TraceReader(path, settings or ReaderSettings(state_path=state_path(path)))
    while not reader.poll(5.0):
        pass
    snapshot = reader.snapshot()
    print(_json_line(snapshot) if json else plain_text(snapshot))
    return EXIT_OK


def plain_text(snapshot: Snapshot) -> str:
    """The most important figures without a panel."""
    progress, totals = snapshot.progress, snapshot.flow.totals
    damaged = {name: n for name, n in snapshot.damage.as_dict().items() if n}
    lines = [
        f"step {_or_na(progress.current_step)}/{_or_na(progress.total_steps)}"
        f"  elapsed {format_duration(progress.elapsed_s)}  eta {format_duration(progress.eta_s)}"
        f"  mode {progress.mode or 'n/a'}",
        "trajectories " + "  ".join(f"{name} {format_count(n)}" for name, n in totals.items()),
        *(
            f"{name:14} n {one.n:<8} p50 {_or_na(one.p50)} p90 {_or_na(one.p90)}"
            f" p99 {_or_na(one.p99)} max {_or_na(one.max)}"
            for name, one in snapshot.flow.transitions.items()
            if one.n
        ),
        "damage " + ("  ".join(f"{name} {n}" for name, n in damaged.items()) or "none"),
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Command line of the module, `python -m unilab_monitor.pages.trace_app DIR`."""
    parser = argparse.ArgumentParser(description="look at a trace directory")
    parser.add_argument("path", type=Path, help="directory with progress/, sample/, trajectory/")
    parser.add_argument("--once", action="store_true", help="print the figures and end")
    parser.add_argument("--json", action="store_true", help="with --once: one JSON line")
    parser.add_argument(
        "--clock-offset",
        action="append",
        default=[],
        metavar="HOST=MS",
        help="added to the times of a host whose clock is off",
    )
    arguments = parser.parse_args(argv)
    try:
        offsets = dict(_offset(text) for text in arguments.clock_offset)
    except ValueError as error:
        parser.error(str(error))
    settings = ReaderSettings(
        state_path=state_path(arguments.path), clock_offsets_ms=offsets or None
    )
    if arguments.once:
        return main_once(arguments.path, arguments.json, settings)
    return run_trace_app(arguments.path, settings)


def _offset(text: str) -> tuple[str, int]:
    host, _, ms = text.partition("=")
    try:
        return host, int(ms)
    except ValueError as error:
        raise ValueError(f"clock offset: expected HOST=MS, got {text!r}") from error


def _or_na(value: float | None) -> str:
    return "n/a" if value is None else f"{value:g}"


def _json_line(snapshot: Snapshot) -> str:
    return json.dumps(document(snapshot), allow_nan=False)


if __name__ == "__main__":
    sys.exit(main())
