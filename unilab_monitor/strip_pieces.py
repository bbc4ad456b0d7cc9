"""What widgets that make their own strips have in common: styled text, and lines to draw again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.style import Style
from rich.text import Text
from textual.geometry import Region


def styled(line: Text, base: Style, console: Console) -> Iterator[tuple[str, Style]]:
    """Pieces of a line with their styles on top of `base`."""
    own = console.get_style(line.style)
    for text, style, _ in line.render(console):
        # A text without spans is rendered without even the style of the whole.
        yield text, base + (own if style is None else style)


def joined(lines: Iterable[int], width: int) -> list[Region]:
    """Runs of neighbouring lines as one region each: every region costs the compositor a pass."""
    regions: list[Region] = []
    for y in sorted(lines):
        if regions and regions[-1].bottom == y:
            regions[-1] = regions[-1].grow((0, 0, 1, 0))
        else:
            regions.append(Region(0, y, width, 1))
    return regions
