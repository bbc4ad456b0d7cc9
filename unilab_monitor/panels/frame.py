"""The rounded frame of a card, drawn as lines like everything else.

The frame is not left to the style sheet: a title that changes twice a second then costs one line,
and a panel's lines can go to the screen as they are.
"""

from dataclasses import dataclass

from unilab_monitor.glyphs import Glyphs
from unilab_monitor.line import EMPTY, Line, clip, cut_left, width_of

MARGIN = 4
"""Cells that a frame and its padding take of a line's width."""

_LEAST_RIGHT_TEXT = 12


@dataclass(kw_only=True, slots=True, frozen=True)
class Frame:
    """What is written on the frame: a text at each end of the upper and the lower edge."""

    title: Line = EMPTY
    title_right: Line = EMPTY
    foot: Line = EMPTY
    foot_right: Line = EMPTY
    style: str = "frame"


def upper_edge(frame: Frame, width: int, glyphs: Glyphs) -> Line:
    """The first row of a card."""
    return _edge(frame.title, frame.title_right, glyphs.corners[:2], frame.style, width, glyphs)


def lower_edge(frame: Frame, width: int, glyphs: Glyphs) -> Line:
    """The last row of a card."""
    return _edge(frame.foot, frame.foot_right, glyphs.corners[2:], frame.style, width, glyphs)


def inside(line: Line, style: str, width: int, glyphs: Glyphs) -> Line:
    """A row between the edges."""
    missing = width - MARGIN - width_of(line)
    if missing < 0:
        line, missing = clip(line, width - MARGIN, glyphs), 0
    blank = " " * missing
    return ((f"{glyphs.vertical} ", style), *line, (f"{blank} {glyphs.vertical}", style))


def _edge(left: Line, right: Line, corners: str, style: str, width: int, glyphs: Glyphs) -> Line:
    """One edge; the right text gives way first, and keeps its end (the end of a path says more)."""
    rule = glyphs.horizontal
    room = width - MARGIN
    left = _inset(clip(left, room - 2, glyphs), style)
    spare = room - width_of(left) - 1
    if width_of(right) + 2 > spare:
        right = cut_left(right, spare - 2, glyphs) if spare >= _LEAST_RIGHT_TEXT else EMPTY
    right = _inset(right, style)
    fill = room - width_of(left) - width_of(right)
    return (
        (corners[0] + rule, style),
        *left,
        (rule * fill, style),
        *right,
        (rule + corners[1], style),
    )


def _inset(line: Line, style: str) -> Line:
    return ((" ", style), *line, (" ", style)) if line else EMPTY
