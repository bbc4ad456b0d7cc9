"""Containers that are nothing but background.

Textual asks every container below a repainted line for its part of that line. A plain container
resolves its styles for that; these answer with blanks.
"""

import os

from rich.style import Style
from textual.containers import Container, VerticalScroll
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip

from unilab_monitor.palette import GROUND


class Ground:
    """Mixed into a container: its own lines are blank. No widget itself, so as to bring no CSS."""

    GROUND_STYLE = Style() if "NO_COLOR" in os.environ else Style(bgcolor=GROUND)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Blanks."""
        return [Strip.blank(crop.width, self.GROUND_STYLE)] * crop.height


class GroundScreen(Ground, Screen[None]):
    """The screen."""


class GroundScroll(Ground, VerticalScroll):
    """What scrolls."""


class GroundContainer(Ground, Container):
    """What holds panels."""
