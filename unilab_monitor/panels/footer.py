"""The bottom line: the keys, or what a requested stop is doing; on the right what was lost."""

from textual.reactive import reactive

from unilab_monitor.glyphs import Glyphs
from unilab_monitor.line import Line, width_of
from unilab_monitor.palette import Palette
from unilab_monitor.panels.line_panel import LinePanel
from unilab_monitor.view import View

PANEL_KEYS = (("q", "plain lines"), ("Ctrl-C", "stop: finish the iteration and save"))
MONITOR_KEYS = (("q", "leave"), ("Up/Down", "scroll"))


class Footer(LinePanel):
    """Keys of this mode.

    Attributes:
        notice: replaces the keys (a stop was requested).
    """

    GROUND = "bar"

    notice: reactive[str] = reactive("", repaint=False)

    def __init__(
        self, glyphs: Glyphs, palette: Palette, *, panel: bool, id: str | None = None
    ) -> None:
        super().__init__(glyphs, palette, id=id)
        self._keys = PANEL_KEYS if panel else MONITOR_KEYS

    def watch_notice(self) -> None:
        """Show it at once."""
        self.redraw()

    def lines(self, view: View, width: int) -> list[Line]:
        """One line."""
        left: Line = ()
        if self.notice:
            left = ((self.notice, "warn strong"),)
        else:
            for key, meaning in self._keys:
                left = (*left, (f"{key} ", "key"), (f"{meaning}   ", "label"))
        lost: Line = ()
        losses = {
            "lapped": view.lapped,
            "dropped": view.dropped,
            "invalid": view.invalid,
            "lost by the trace": view.trace_dropped,
        }
        if any(losses.values()):
            text = "  ".join(f"{name} {count}" for name, count in losses.items() if count)
            lost = ((f"records {text}", "dim"),)
        gap = max(width - width_of(left) - width_of(lost), 1)
        return [(*left, (" " * gap, "value"), *lost)]
