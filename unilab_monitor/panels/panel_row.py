"""Panels side by side, all as high as the highest; on a narrow screen one below the other."""

from unilab_monitor.messages import LinesChanged
from unilab_monitor.panels.ground import GroundContainer
from unilab_monitor.panels.line_panel import LinePanel

NARROW = "-narrow"


class PanelRow(GroundContainer):
    """Levels the heights of its panels whenever one of them needs another height."""

    def on_lines_changed(self, event: LinesChanged) -> None:
        """Give every panel the height that it, or on a wide screen the highest one, needs."""
        event.stop()
        panels = [panel for panel in self.query(LinePanel) if panel.display]
        if not panels:
            return
        stacked = self.screen.has_class(NARROW)
        highest = max(panel.needed_height for panel in panels)
        for panel in panels:
            panel.styles.height = panel.needed_height if stacked else highest
