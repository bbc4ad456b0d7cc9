"""Colours by role. Every span names one; nothing else in the monitor spells out a colour."""

from collections.abc import Mapping
from functools import cache

from rich.style import Style
from textual.theme import Theme

GROUND = "#10141a"
BAR_GROUND = "#1a2029"
RULE = "#34404d"

_GROUNDS = {"ground": GROUND, "bar": BAR_GROUND}

_ROLES: dict[str, tuple[str, str]] = {
    "value": ("#dde3ea", ""),
    "strong": ("#f3f6f9", "bold"),
    "label": ("#93a0ae", ""),
    "dim": ("#717d8b", ""),
    "frame": (RULE, ""),
    "frame alarm": ("#8a6a3a", ""),
    "title": ("#8ab8ff", "bold"),
    "accent": ("#8ab8ff", ""),
    "good": ("#86c98b", ""),
    "warn": ("#e3bd6f", ""),
    "bad": ("#ef7b80", ""),
    "warn strong": ("#e3bd6f", "bold"),
    "bad strong": ("#ef7b80", "bold"),
    "child": ("#5f9ea0", ""),
    "child value": ("#7fb3b5", ""),
    "group": ("#8795a5", "italic"),
    "spark": ("#4f74ad", ""),
    "bar": ("#3f4f63", ""),
    "bar good": ("#4c7a56", ""),
    "key": ("#c9d4df", "bold"),
}

THEME = Theme(
    name="unilab",
    primary="#8ab8ff",
    secondary="#5f9ea0",
    accent="#8ab8ff",
    foreground="#dde3ea",
    background=GROUND,
    surface=GROUND,
    panel=BAR_GROUND,
    success="#86c98b",
    warning="#e3bd6f",
    error="#ef7b80",
    dark=True,
)


class Palette:
    """Finished styles: one table per background, or weight alone where colour is not wanted."""

    def __init__(self, *, colour: bool = True) -> None:
        """`colour=False` follows NO_COLOR."""
        self._colour = colour

    def on(self, ground: str) -> Mapping[str, Style]:
        """Styles by role on a background of this name."""
        return _styles(ground, self._colour)


@cache
def _styles(ground: str, colour: bool) -> dict[str, Style]:
    table = {}
    for role, (color, weight) in _ROLES.items():
        style = Style(bold=weight == "bold", italic=weight == "italic")
        if colour:
            style += Style(color=color, bgcolor=_GROUNDS[ground])
        table[role] = style
    return table
