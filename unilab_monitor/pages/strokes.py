"""Bars, chains, tiles and axes as styled text; every function gives one or a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from rich.style import Style
from rich.text import Text

_COLOURS = {
    "value": "#dde3ea",
    "strong": "bold #f3f6f9",
    "label": "#93a0ae",
    "dim": "#717d8b",
    "title": "bold #8ab8ff",
    "accent": "#8ab8ff",
    "good": "#86c98b",
    "warn": "#e3bd6f",
    "bad": "#ef7b80",
    "child": "#7fb3b5",
    "inherited": "italic #8795a5",
    "bar": "#4f74ad",
    "rule": "#34404d",
}
STATE_STYLES = {
    "done": "good",
    "running": "accent",
    "waiting": "warn",
    "pending": "dim",
    "skipped": "dim",
    "aborted": "bad",
}
STATE_GLYPHS = {
    "done": "●",
    "running": "◐",
    "waiting": "◌",
    "pending": "○",
    "skipped": "–",
    "aborted": "✗",
}
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@cache
def style_of(role: str) -> Style:
    """Style of a role."""
    return Style.parse(_COLOURS[role])


def cell(text: str, role: str = "value") -> Text:
    """Text of our own."""
    return Text(text, style_of(role), no_wrap=True, end="")


def number(text: str, role: str = "value") -> Text:
    """Text for a right-aligned column."""
    return Text(text, style_of(role), justify="right", no_wrap=True, end="")


def seconds(value: float | None, role: str = "value") -> Text:
    """A duration for a column of seconds."""
    return number("n/a", "dim") if value is None else number(short_seconds(value), role)


def short_seconds(value: float | None) -> str:
    """A duration in at most seven characters: ms, s, m or h."""
    if value is None:
        return "n/a"
    size = abs(value)
    if size < 0.0995:
        return f"{value * 1000.0:.0f} ms"
    if size < 99.95:
        return f"{value:.2f} s" if size < 9.995 else f"{value:.1f} s"
    if size < 5_970.0:
        return f"{value / 60.0:.1f} m"
    return f"{value / 3600.0:.1f} h" if size < 360_000.0 else f"{value / 86_400.0:.1f} d"


def bar(share: float, width: int, role: str = "bar") -> Text:
    """A bar of `width` cells that is filled to `share` of 1."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, part = divmod(eighths, 8)
    filled = "█" * full + (_EIGHTHS[part] if part else "")
    text = Text(filled, style_of(role), no_wrap=True, end="")
    text.append("·" * (width - len(filled)), style_of("rule"))
    return text


def span(start: float, end: float, low: float, high: float, width: int, role: str = "bar") -> Text:
    """A mark from `start` to `end` on an axis from `low` to `high`; at least one cell wide."""
    scale = width / (high - low) if high > low else 0.0
    first = min(max(int((start - low) * scale), 0), width - 1)
    last = min(max(round((end - low) * scale), first + 1), width)
    text = Text(" " * first, no_wrap=True, end="")
    text.append("█" * (last - first), style_of(role))
    text.append(" " * (width - last))
    return text


def tiles(entries: Sequence[tuple[str, str, str]], width: int) -> Text:
    """(label, value, role) side by side, in as many rows as the width needs."""
    per_row = max(min(len(entries), width // 18), 1)
    size = max(width // per_row, 1)
    text = Text(no_wrap=True, end="")
    for first in range(0, len(entries), per_row):
        row = entries[first : first + per_row]
        if first:
            text.append("\n")
        for label, _, _ in row:
            text.append(label[: size - 1].ljust(size), style_of("label"))
        text.append("\n")
        for _, value, role in row:
            text.append(value[: size - 1].ljust(size), style_of(role))
    return text


def wrapped(parts: Sequence[Text], width: int, separator: str = "  ") -> Text:
    """Parts in reading order; a part never breaks across lines unless it is wider than one."""
    text, used = Text(end=""), 0
    for part in parts:
        need = part.cell_len + (len(separator) if used else 0)
        if used and used + need > width:
            text.append("\n")
            used = 0
        elif used:
            text.append(separator, style_of("rule"))
        used += need
        text.append_text(part)
    return text


def title(text: str, note: str = "") -> Text:
    """Head of a section."""
    # A style of the whole text would also make what is appended bold.
    head = Text(no_wrap=True, end="").append(text, style_of("title"))
    if note:
        head.append(f"  {note}", style_of("dim"))
    return head
