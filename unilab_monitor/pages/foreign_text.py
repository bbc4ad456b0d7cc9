"""Foreign text on a page: literal, visible, bounded. Nothing here is read as markup."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text

from unilab_core.telemetry.plain import sanitize
from unilab_monitor.pages.strokes import style_of

MAX_LINES = 400
MAX_LINE_CHARS = 2_000


def literal(text: str | None, max_chars: int = 200, style: str = "value") -> Text:
    """One line; None is shown as absent."""
    if text is None:
        return Text("n/a", style_of("dim"))
    return Text(sanitize(text, max_chars), style_of(style), no_wrap=True, end="")


def literal_block(text: str | None, style: str = "value", max_lines: int = MAX_LINES) -> Text:
    """Several lines, as the text has them; the rest of a long text is counted."""
    if text is None:
        return Text("n/a", style_of("dim"))
    lines = text[: MAX_LINE_CHARS * max_lines].split("\n", max_lines)
    shown = [sanitize(line.removesuffix("\r"), MAX_LINE_CHARS) for line in lines[:max_lines]]
    block = Text("\n".join(shown), style_of(style), end="")
    if len(lines) > max_lines or len(text) > MAX_LINE_CHARS * max_lines:
        block.append(f"\n… {len(text)} characters in all", Style(italic=True, dim=True))
    return block
