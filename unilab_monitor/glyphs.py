"""The characters that the view is drawn with: one set for UTF-8 consoles, one in plain ASCII."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(kw_only=True, slots=True, frozen=True)
class Glyphs:
    """One complete set of drawing characters, each one cell wide.

    Attributes:
        corners: top left, top right, bottom left, bottom right.
        tree_child, tree_last: marks behind the nested details of a row.
        levels: rising levels of a sparkline.
        bar: filled cells of a bar, then its end in rising eighths (may be one character).
    """

    corners: str
    horizontal: str
    vertical: str
    separator: str
    tree_child: str
    tree_last: str
    up: str
    down: str
    flat: str
    dot: str
    arrow: str
    ellipsis: str
    middle_dot: str
    levels: str
    bar_full: str
    bar_partial: str
    progress_done: str
    progress_rest: str
    alarm: str


UNICODE = Glyphs(
    corners="╭╮╰╯",
    horizontal="─",
    vertical="│",
    separator="│",
    tree_child="─┤",
    tree_last="─┘",
    up="▲",
    down="▼",
    flat="▶",
    dot="●",
    arrow="→",
    ellipsis="…",
    middle_dot="·",
    levels="▁▂▃▄▅▆▇█",
    bar_full="█",
    bar_partial="▏▎▍▌▋▊▉",
    progress_done="━",
    progress_rest="─",
    alarm="▲",
)

ASCII = Glyphs(
    corners="++++",
    horizontal="-",
    vertical="|",
    separator="|",
    tree_child="-+",
    tree_last="-'",
    up="^",
    down="v",
    flat=">",
    dot="*",
    arrow="->",
    ellipsis="~",
    middle_dot="-",
    levels="_.-~=+*#",
    bar_full="#",
    bar_partial="",
    progress_done="=",
    progress_rest="-",
    alarm="!",
)


def glyphs_for(*, encoding: str | None, environ: Mapping[str, str]) -> Glyphs:
    """The set that the console can show.

    Python itself falls back to UTF-8 in the C locale, so the stream's encoding alone does not tell
    what the terminal can show: a locale that was chosen explicitly and is not UTF-8 wins.

    Args:
        encoding: of the stream that is drawn on.
        environ: for LC_ALL, LC_CTYPE and LANG, of which the first that is set counts.
    """
    chosen = next((environ[n] for n in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(n)), "")
    names = [encoding or "ascii", *([chosen] if chosen else [])]
    return UNICODE if all("utf8" in name.lower().replace("-", "") for name in names) else ASCII
