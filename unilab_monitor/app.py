"""The drawn monitor: one Textual application for the launcher's panel and for attached monitors.

The feed thread posts a `ViewReady` twice a second at most; the application hands the view to the
panels that are shown, and each repaints only the lines that differ. Nothing here touches shared
memory: a stop is asked for through the callable that the entry point passes in.

    width   < 96      stacked cards, one Timing column, the system's figures in one line
            96-119    metrics beside rewards, Learner beside Collector, the same line
            >= 120    Learner, Collector and System beside each other
"""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from unilab_monitor.glyphs import Glyphs
from unilab_monitor.messages import LinesChanged, ViewReady
from unilab_monitor.palette import BAR_GROUND, GROUND, RULE, THEME, Palette
from unilab_monitor.panels.clocks import Collector, Learner, Timing
from unilab_monitor.panels.footer import Footer
from unilab_monitor.panels.ground import GroundScreen, GroundScroll
from unilab_monitor.panels.header import Header
from unilab_monitor.panels.line_panel import LinePanel
from unilab_monitor.panels.metrics import Metrics
from unilab_monitor.panels.panel_row import PanelRow
from unilab_monitor.panels.rewards import Rewards
from unilab_monitor.panels.status import Status
from unilab_monitor.panels.system import System, SystemLine
from unilab_monitor.panels.tab_line import TabLine
from unilab_monitor.view import View

if TYPE_CHECKING:
    from unilab_monitor.pages.trace_messages import LeavePages
    from unilab_monitor.pages.trace_screen import TraceScreen

LEAVE_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

MEDIUM_COLUMNS = 96
WIDE_COLUMNS = 120
ROOMY_COLUMNS = 132
"""From here on metrics and rewards fit in two columns each when they share the width evenly."""
MIN_BODY_ROWS = 3
TRACE_PAGES = ("progress", "flow", "trace", "trajectory", "health")
"""By the keys 1 to 5, for a job that writes RL traces."""

_CSS = f"""
Screen {{ background: {GROUND}; layout: vertical; }}
LinePanel {{ width: 1fr; height: 1; background: {GROUND}; }}
PanelRow {{ width: 1fr; height: auto; layout: horizontal; }}
#body {{ height: auto; scrollbar-size-vertical: 1; scrollbar-gutter: auto;
         scrollbar-color: {RULE}; scrollbar-background: {GROUND}; }}
#footer {{ dock: bottom; background: {BAR_GROUND}; }}
#metrics {{ width: 5fr; }}
#rewards {{ width: 3fr; }}
#learner, #collector {{ width: 5fr; }}
#system {{ width: 4fr; }}
#timing {{ display: none; }}
#tabs {{ display: none; background: {BAR_GROUND}; }}
#tabs.-shown {{ display: block; }}
.-roomy #rewards {{ width: 5fr; }}
.-wide #system-line, .-roomy #system-line {{ display: none; }}
.-medium #system, .-narrow #system {{ display: none; }}
.-narrow PanelRow {{ layout: vertical; }}
.-narrow #metrics, .-narrow #rewards {{ width: 1fr; }}
.-narrow #learner, .-narrow #collector {{ display: none; }}
.-narrow #timing {{ display: block; }}
"""

STOP_NOTICES = (
    "Stop requested: finishing the iteration and saving. Ctrl-C again: leave without saving",
    "Second stop: leaving without saving. Ctrl-C again: stop at once",
    "Third stop: ending every process at once",
)


class MonitorApp(App[None]):
    """Draws the newest view.

    Args:
        glyphs: characters that the console can show.
        request_stop: asks the launcher to stop, returns a text when it could not; None for an
            attached monitor, where Ctrl-C just leaves.
        leave_when_ended: leave by itself when the job has ended (the launcher's panel).
        on_ready: called once the application runs, from when on views may be posted.
    """

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    TITLE = "UniLab"
    CSS = _CSS
    HORIZONTAL_BREAKPOINTS: ClassVar[list[tuple[int, str]]] = [
        (0, "-narrow"),
        (MEDIUM_COLUMNS, "-medium"),
        (WIDE_COLUMNS, "-wide"),
        (ROOMY_COLUMNS, "-roomy"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", "leave", priority=True),
        Binding("ctrl+q", "leave", priority=True, show=False),
        Binding("ctrl+c", "interrupt", priority=True, show=False),
        Binding("up,k", "scroll_body(-1)", show=False),
        Binding("down,j", "scroll_body(1)", show=False),
        Binding("pageup", "scroll_body(-10)", show=False),
        Binding("pagedown,space", "scroll_body(10)", show=False),
        Binding("home,g", "scroll_body(-10000)", show=False),
        Binding("end,G", "scroll_body(10000)", show=False),
        Binding("0", "timing", "timing"),
        *(
            Binding(str(place), f"trace_page({name!r})", show=False)
            for place, name in enumerate(TRACE_PAGES, 1)
        ),
    ]

    def __init__(
        self,
        glyphs: Glyphs,
        *,
        request_stop: Callable[[], str | None] | None = None,
        leave_when_ended: bool = False,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self.glyphs = glyphs
        self.view: View | None = None
        self._request_stop = request_stop
        self._leave_when_ended = leave_when_ended
        self._on_ready = on_ready
        self._num_stops = 0
        self._panels: list[LinePanel] = []
        self._tabs: TabLine | None = None
        self._footer: Footer | None = None
        self._traces: TraceScreen | None = None

    def get_default_screen(self) -> GroundScreen:
        """The one screen there is."""
        return GroundScreen(id="_default")

    def compose(self) -> ComposeResult:
        """Header on top, cards that scroll, status and keys at the bottom."""
        style = (self.glyphs, Palette(colour="NO_COLOR" not in os.environ))
        yield TabLine(*style, id="tabs")
        yield Header(*style, id="header")
        with GroundScroll(id="body", can_focus=False):
            with PanelRow(id="figures"):
                yield Metrics(*style, id="metrics")
                yield Rewards(*style, id="rewards")
            with PanelRow(id="clocks"):
                yield Learner(*style, id="learner")
                yield Collector(*style, id="collector")
                yield System(*style, id="system")
                yield Timing(*style, id="timing")
            yield SystemLine(*style, id="system-line")
        yield Status(*style, id="status")
        yield Footer(*style, panel=self._request_stop is not None, id="footer")

    def on_mount(self) -> None:
        """Theme, panels, signals; then the feed may begin."""
        self.register_theme(THEME)
        self.theme = THEME.name
        self._panels = list(self.query(LinePanel))
        self._tabs, self._footer = self.query_one(TabLine), self.query_one(Footer)
        if threading.current_thread() is threading.main_thread():
            # Without a handler, SIGTERM would leave the terminal in raw mode.
            loop = asyncio.get_running_loop()
            for signum in LEAVE_SIGNALS:
                loop.add_signal_handler(signum, self.exit)
        # What exists now stays: the garbage collector need not walk through it again and again.
        # Lines of a redraw are freed by their reference counts: it may look for cycles less often.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        if self._on_ready is not None:
            self._on_ready()

    def on_view_ready(self, message: ViewReady) -> None:
        """Show the newest picture; of several that wait, only the last is worth drawing."""
        message.stop()
        self.view = message.view
        if not self._shows_traces:
            self._draw(message.view)
        if self._leave_when_ended and message.view.end is not None:
            self.exit()

    def _draw(self, view: View) -> None:
        """Hand the view to the panels that are shown."""
        tabs = self._tabs
        if view.facts.trace_root is not None and tabs is not None and not tabs.has_class("-shown"):
            tabs.add_class("-shown")
            self._settle()
        for panel in self._panels:
            if panel.display:
                panel.view = view

    @property
    def _shows_traces(self) -> bool:
        return len(self.screen_stack) > 1

    def on_lines_changed(self, event: LinesChanged) -> None:
        """Header and status take what they need; the cards scroll in what is left."""
        event.stop()
        self._settle()

    def on_resize(self) -> None:
        """The room for the cards depends on the height."""
        self._settle()

    def _settle(self) -> None:
        if self._shows_traces or not self._panels:
            return
        header, status = self.query_one(Header), self.query_one(Status)
        used = 2 if self.query_one(TabLine).has_class("-shown") else 1
        for panel in (header, status):
            panel.styles.height = panel.needed_height
            used += panel.needed_height
        self.query_one("#body").styles.max_height = max(self.size.height - used, MIN_BODY_ROWS)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A letter that is typed into a line is no command."""
        del parameters
        return action != "leave" or not isinstance(self.focused, Input)

    def action_trace_page(self, name: str) -> None:
        """Show a page about the job's RL traces, if it has any."""
        if self._traces is None and self.view is not None:
            # With the pages come numpy and the reader, which a job without traces does not need.
            from unilab_monitor.pages.trace_screen import trace_screen

            self._traces = trace_screen(self.view.facts)
            if self._traces is not None:
                self.install_screen(self._traces, "traces")
        if self._traces is None:
            return
        if not self._shows_traces:
            self.push_screen("traces")
        self._traces.call_after_refresh(self._traces.show_page, name)

    def action_timing(self) -> None:
        """Back to the timing view."""
        if self._shows_traces:
            self.pop_screen()
            self.call_after_refresh(self._return)

    def on_leave_pages(self, message: "LeavePages") -> None:
        """Back from the pages."""
        message.stop()
        self.action_timing()

    def _return(self) -> None:
        self._settle()
        if self.view is not None:
            self._draw(self.view)

    def action_leave(self) -> None:
        """Leave; the job goes on."""
        self.exit()

    def action_interrupt(self) -> None:
        """Ask the launcher to stop, more urgently each time; an attached monitor just leaves."""
        if self._request_stop is None:
            self.exit()
            return
        failure = self._request_stop()
        notice = failure or STOP_NOTICES[min(self._num_stops, len(STOP_NOTICES) - 1)]
        self._num_stops += 1
        if self._footer is not None:
            self._footer.notice = notice
        if self._shows_traces:
            self.notify(notice, timeout=30.0)

    def action_scroll_body(self, lines: int) -> None:
        """Scroll the cards."""
        if self._shows_traces:
            return
        self.query_one("#body", GroundScroll).scroll_relative(y=lines, animate=False)
