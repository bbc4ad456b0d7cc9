"""The trace pages of a job, as a second screen beside its timing view.

The screen is made when a page is first asked for and kept: going back to the timing view stops its
feed, coming again goes on where it was.
"""

from pathlib import Path

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer

from unilab_core.telemetry.rl_trace.reader import ReaderSettings
from unilab_core.telemetry.rl_trace.state_file import state_path
from unilab_monitor.pages.trace_pages import TracePages
from unilab_monitor.view import JobFacts


class TraceScreen(Screen[None]):
    """The five pages about one job."""

    def __init__(self, root: Path, settings: ReaderSettings) -> None:
        super().__init__()
        self._root = root
        self._settings = settings

    def compose(self) -> ComposeResult:
        """The pages and the keys."""
        yield TracePages(self._root, self._settings, beside_timing=True)
        yield Footer(show_command_palette=False)

    def on_screen_suspend(self) -> None:
        """Nobody looks: do not read."""
        self.query_one(TracePages).pause()

    def on_screen_resume(self) -> None:
        """Read on."""
        self.query_one(TracePages).resume()

    def show_page(self, name: str) -> None:
        """Show one of the pages."""
        self.query_one(TracePages).action_page(name)


def trace_screen(facts: JobFacts) -> TraceScreen | None:
    """The pages of a job; None where it has no traces that can be found."""
    if facts.trace_root is None:
        return None
    root = Path(facts.trace_root)
    times = None if facts.trace_times is None else Path(facts.trace_times)
    if not root.is_dir() and facts.run_dir is not None:
        moved = Path(facts.run_dir) / root.name
        if moved.is_dir():
            root = moved
            times = None
    return TraceScreen(root, ReaderSettings(state_path=state_path(root), times_path=times))
