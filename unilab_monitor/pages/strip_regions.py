"""Lines that are to be drawn again, as regions of a widget."""

from collections.abc import Iterable

from textual.geometry import Region


def joined(lines: Iterable[int], width: int) -> list[Region]:
    """Runs of neighbouring lines as one region each: every region costs the compositor a pass."""
    regions: list[Region] = []
    for y in sorted(lines):
        if regions and regions[-1].bottom == y:
            regions[-1] = regions[-1].grow((0, 0, 1, 0))
        else:
            regions.append(Region(0, y, width, 1))
    return regions
