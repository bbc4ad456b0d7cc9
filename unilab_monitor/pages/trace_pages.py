"""The five pages as one widget: tabs, drilling down, going back.

Mount `TracePages(root)` in any application; it owns its feed and ends it when it is removed. The
application need not know anything about traces.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static, TabbedContent, TabPane, Tabs

from unilab_core.telemetry.plain import sanitize
from unilab_core.telemetry.rl_trace.reader import ReaderSettings, TraceReader
from unilab_core.telemetry.rl_trace.snapshot import Depth, Snapshot
from unilab_core.telemetry.rl_trace.state_file import state_path
from unilab_monitor.pages.flow_page import FlowPage
from unilab_monitor.pages.health_page import HealthPage
from unilab_monitor.pages.progress_page import ProgressPage
from unilab_monitor.pages.trace_feed import TraceFeed
from unilab_monitor.pages.trace_messages import (
    FeedFailed,
    LeavePages,
    OpenFlow,
    OpenTrace,
    OpenTrajectory,
    SnapshotReady,
    StepReady,
    TraceReady,
)
from unilab_monitor.pages.trace_page import TracePage
from unilab_monitor.pages.trajectory_page import TrajectoryPage

PAGES = (
    ("progress", "1 Progress", ProgressPage),
    ("flow", "2 Sample Flow", FlowPage),
    ("trace", "3 Trace", TracePage),
    ("trajectory", "4 Trajectory", TrajectoryPage),
    ("health", "5 Data Health", HealthPage),
)


DEPTHS = {"progress": Depth.STEPS, "flow": Depth.FLOW}
"""Figures that a page shows, if more than lines."""

TIMING = "back-to-timing"
"""The tab in front of the pages, where they stand beside the timing view."""


class TracePages(Vertical):
    """Training Progress, Sample Flow, Trace, Trajectory and Data Health of one directory."""

    DEFAULT_CSS = """
    TracePages { height: 1fr; }
    TracePages TabbedContent { height: 1fr; }
    TracePages TabPane { padding: 0 1; }
    TracePages VerticalScroll { height: 1fr; }
    TracePages Static, TracePages LiveText { height: auto; width: 1fr; }
    TracePages Tab { width: auto; height: 1; padding: 0 1; }
    TracePages .section { margin-top: 1; }
    TracePages Input.line { height: 1; border: none; padding: 0; margin-top: 1; }
    TracePages Input.line:focus { border: none; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(i), f"page({name!r})", label[2:], show=False) for i, (name, label, _) in
          enumerate(PAGES, 1)),
        Binding("escape", "back", "back"),
        Binding("j", "next_job", "next job", show=False),
    ]  # fmt: skip

    def __init__(
        self,
        root: Path,
        settings: ReaderSettings | None = None,
        *,
        beside_timing: bool = False,
    ) -> None:
        super().__init__()
        self._beside_timing = beside_timing
        if settings is None:
            settings = ReaderSettings(state_path=state_path(root))
        self._feed = TraceFeed(TraceReader(root, settings), self.post_message)
        self._trail: list[str] = []
        self._shown = "progress"
        self._snapshot: Snapshot | None = None

    def compose(self) -> ComposeResult:
        """One tab per page."""
        with TabbedContent(initial="progress"):
            if self._beside_timing:
                with TabPane("0 Timing", id=TIMING):
                    yield Static()
            for name, label, page in PAGES:
                with TabPane(label, id=name):
                    yield page()

    def on_mount(self) -> None:
        """Begin to read."""
        # The number keys choose a page; the focus belongs to the tables.
        self.query_one(Tabs).can_focus = False
        self._feed.want(DEPTHS[self._shown])
        self._feed.start()

    def on_unmount(self) -> None:
        """End the thread."""
        self._feed.stop()

    def pause(self) -> None:
        """Stop reading until `resume`; what was read stays."""
        self._feed.pause()

    def resume(self) -> None:
        """Read on."""
        self._feed.resume()

    def action_page(self, name: str) -> None:
        """Show a page."""
        self._go(name, remember=False)

    def action_next_job(self) -> None:
        """Show the next job of the directory."""
        self._feed.next_job()

    def action_back(self) -> None:
        """Up one level: out of a chosen step, or to the page one came from."""
        page = self._page(self._active())
        if isinstance(self.app.focused, Input):
            page.focus_first()
            return
        if isinstance(page, ProgressPage | FlowPage) and page.back():
            return
        if self._trail:
            self._go(self._trail.pop(), remember=False)
        elif self._beside_timing:
            self.post_message(LeavePages())

    def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        """After a click on a tab the focus is elsewhere still."""
        event.stop()
        if self._active() == TIMING:
            self.query_one(TabbedContent).active = self._shown
            self.post_message(LeavePages())
            return
        self._shown = self._active()
        self._draw_chosen(self._shown)

    def on_snapshot_ready(self, message: SnapshotReady) -> None:
        """New figures for all pages."""
        message.stop()
        first, self._snapshot = self._snapshot is None, message.snapshot
        # A page that is not shown is drawn when it is chosen.
        self._page(self._active()).show(message.snapshot)
        if first:
            self._page(self._active()).focus_first()
        if self._active() == "flow":
            self._ask_step()
        if self._active() == "trace" and message.snapshot.running and self._trace.is_open_ended:
            self._feed.ask_trace(self._trace.trajectory_name)

    def on_trace_ready(self, message: TraceReady) -> None:
        """A trace and its trajectory."""
        message.stop()
        self._trace.show_trace(message.name, message.trace, message.trajectory)
        self._trajectory.show_trajectory(message.name, message.trajectory, message.raw_json)

    def on_step_ready(self, message: StepReady) -> None:
        """Figures of a step."""
        message.stop()
        self._flow.show_step(message.step, message.transitions)

    def on_feed_failed(self, message: FeedFailed) -> None:
        """Say that the figures stand still, and why."""
        message.stop()
        text = f"reading has stopped: {sanitize(message.reason, 300)}"
        self.notify(text, severity="error", timeout=600.0, markup=False)

    def on_open_flow(self, message: OpenFlow) -> None:
        """From a stage to the flow of its step."""
        message.stop()
        self._go("flow")
        if message.step is not None:
            self._feed.ask_step(message.step)
        self._flow.open_step(message.step, message.transition)

    def on_open_trace(self, message: OpenTrace) -> None:
        """From a trajectory's name to its trace."""
        message.stop()
        self._go("trace")
        self._trace.open(message.name)
        self._feed.ask_trace(message.name)

    def on_open_trajectory(self, message: OpenTrajectory) -> None:
        """From a trace to the turns."""
        message.stop()
        self._go("trajectory")
        self._trajectory.open(message.name, message.turn)
        self._feed.ask_trace(message.name)

    def _go(self, name: str, *, remember: bool = True) -> None:
        here = self._active()
        if here == name:
            return
        if remember:
            self._trail.append(here)
            del self._trail[:-20]
        self.query_one(TabbedContent).active = name
        self._draw_chosen(name)

    def _draw_chosen(self, name: str) -> None:
        """Newest figures for the page, and the focus unless something in it has it."""
        if self._snapshot is not None:
            self._page(name).show(self._snapshot)
        self._feed.want(DEPTHS.get(name, Depth.LINES))
        if name == "flow":
            self._ask_step()
        page, focused = self._page(name), self.screen.focused
        if focused is None or page not in focused.ancestors:
            page.focus_first()

    def _ask_step(self) -> None:
        """Newest figures of the step that the flow is restricted to."""
        step = self._flow.step
        if step is not None:
            self._feed.ask_step(step)

    def _active(self) -> str:
        return self.query_one(TabbedContent).active or "progress"

    def _page(self, name: str) -> ProgressPage | FlowPage | TracePage | TrajectoryPage | HealthPage:
        kind = next(page for one, _, page in PAGES if one == name)
        return self.query_one(kind)

    @property
    def _flow(self) -> FlowPage:
        return self.query_one(FlowPage)

    @property
    def _trace(self) -> TracePage:
        return self.query_one(TracePage)

    @property
    def _trajectory(self) -> TrajectoryPage:
        return self.query_one(TrajectoryPage)


def page_names() -> Iterator[str]:
    """Names of the pages, in order of their keys."""
    yield from (name for name, _, _ in PAGES)
