"""Lines of styled text: what panels are made of, before any widget. Widths are terminal cells.

    Span  (text, style name)          a style name is a key of `palette.STYLES`
    Line  a tuple of spans

Foreign text must have gone through `sanitize` before it becomes a span.
"""

from collections.abc import Sequence
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

from unilab_core.telemetry.plain import format_duration, sanitize
from unilab_monitor.glyphs import Glyphs

Span = tuple[str, str]
Line = tuple[Span, ...]

EMPTY: Line = ()
COLUMN_GAP = 3

ABSENT = "-"
"""A figure that is not known, as the telemetry's own formats write it."""


def format_age(seconds: float) -> str:
    """`4.2 s` below a minute, then as a duration."""
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(seconds)


@lru_cache(maxsize=4096)
def shown(text: str) -> str:
    """Foreign text as it may be shown; the same few names come twice a second."""
    return sanitize(text)


def cells(text: str) -> int:
    """Cells that a text takes; nearly all of ours is ASCII, where that is its length."""
    return len(text) if text.isascii() else cell_len(text)


def width_of(line: Line) -> int:
    """Cells that the line takes."""
    return sum([cells(text) for text, _ in line])


def fit(text: str, width: int, glyphs: Glyphs) -> str:
    """Text in exactly `width` cells: padded on the right, or cut with an ellipsis."""
    if width <= 0:
        return ""
    missing = width - cells(text)
    if missing >= 0:
        return text + " " * missing
    return set_cell_size(text, width - 1) + glyphs.ellipsis


def cut(text: str, width: int, glyphs: Glyphs) -> str:
    """Text in at most `width` cells."""
    return text if cells(text) <= width else fit(text, width, glyphs)


def right(text: str, width: int) -> str:
    """Text aligned to the right edge of `width` cells; longer text is left as it is."""
    return " " * max(width - cells(text), 0) + text


def cut_left(line: Line, width: int, glyphs: Glyphs) -> Line:
    """The end of the line's text in exactly `width` cells, in the style of its first span."""
    text = "".join(part for part, _ in line)
    while cells(text) > width - 1:
        text = text[1:]
    return ((fit(glyphs.ellipsis + text, width, glyphs), line[0][1]),)


def clip(line: Line, width: int, glyphs: Glyphs) -> Line:
    """The line in at most `width` cells, with an ellipsis where something was cut."""
    if width_of(line) <= width:
        return line
    kept: list[Span] = []
    room = width
    for text, style in line:
        if cells(text) >= room:
            # The ellipsis also stands for the spans behind this one.
            kept.append((fit(text + " ", room, glyphs), style))
            break
        kept.append((text, style))
        room -= cells(text)
    return tuple(kept)


def pad(line: Line, width: int) -> Line:
    """The line filled with blanks up to `width` cells."""
    missing = width - width_of(line)
    return (*line, (" " * missing, "value")) if missing > 0 else line


def flow(cells: Sequence[Line], width: int, separator: Span) -> list[Line]:
    """Cells one after the other, a new line where the next one does not fit."""
    lines: list[Line] = []
    current: Line = ()
    for cell in cells:
        joined = (*current, separator, *cell) if current else cell
        if current and width_of(joined) > width:
            lines.append(current)
            current = cell
        else:
            current = joined
    if current:
        lines.append(current)
    return lines


def columns(lines: Sequence[Line], *, count: int, width: int, gap: int = COLUMN_GAP) -> list[Line]:
    """Lines dealt into `count` equally wide columns, top to bottom, then left to right."""
    if count == 1:
        return list(lines)
    height = -(-len(lines) // count)
    column_width = (width - gap * (count - 1)) // count
    rows: list[Line] = []
    for y in range(height):
        row: Line = ()
        for x in range(count):
            index = x * height + y
            cell = lines[index] if index < len(lines) else EMPTY
            row = (*row, *((" " * gap, "value"),) * (x > 0), *pad(cell, column_width))
        rows.append(row)
    return rows


def sparkline(values: Sequence[float], width: int, glyphs: Glyphs) -> str:
    """The last `width` values as rising levels between their least and largest."""
    shown = [value for value in values[-width:] if value - value == 0.0]
    if width <= 0 or len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    top = len(glyphs.levels) - 1
    scale = top / (high - low) if high > low else 0.0
    return "".join(
        glyphs.levels[round((value - low) * scale) if scale else top // 2] for value in shown
    )


def bar(fraction: float, width: int, glyphs: Glyphs) -> str:
    """A bar of at most `width` cells, its end drawn in eighths of a cell where the glyphs allow."""
    steps = len(glyphs.bar_partial) + 1
    filled = round(min(max(fraction, 0.0), 1.0) * width * steps)
    whole, part = divmod(filled, steps)
    return glyphs.bar_full * whole + (glyphs.bar_partial[part - 1] if part else "")
