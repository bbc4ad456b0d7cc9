"""Colours by role. Every span names one; nothing else in the monitor spells out a colour."""

from rich.style import Style
from textual.theme import Theme

BACKGROUND = "#10141a"
BORDER = "#303a46"

STYLES: dict[str, Style] = {
    "value": Style(color="#dde3ea"),
    "strong": Style(color="#f3f6f9", bold=True),
    "label": Style(color="#93a0ae"),
    "dim": Style(color="#64707d"),
    "frame": Style(color=BORDER),
    "title": Style(color="#8ab8ff", bold=True),
    "accent": Style(color="#8ab8ff"),
    "good": Style(color="#86c98b"),
    "warn": Style(color="#e3bd6f"),
    "bad": Style(color="#ef7b80"),
    "bad strong": Style(color="#ef7b80", bold=True),
    "warn strong": Style(color="#e3bd6f", bold=True),
    "child": Style(color="#5f9ea0"),
    "child value": Style(color="#7fb3b5"),
    "group": Style(color="#7d8b99", italic=True),
    "spark": Style(color="#5b84c4"),
    "bar": Style(color="#3f4f63"),
    "bar good": Style(color="#4c7a56"),
    "key": Style(color="#c9d4df", bold=True),
}

THEME = Theme(
    name="unilab",
    primary="#8ab8ff",
    secondary="#5f9ea0",
    accent="#8ab8ff",
    foreground="#dde3ea",
    background=BACKGROUND,
    surface=BACKGROUND,
    panel="#1a2029",
    success="#86c98b",
    warning="#e3bd6f",
    error="#ef7b80",
    dark=True,
)
