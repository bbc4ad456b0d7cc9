"""Plain text for terminals without a panel: numbers, durations, one progress line, `sanitize`.

The panel uses the same number and duration formats.
"""

import unicodedata
from math import isfinite

from unilab_core.telemetry.records import IterationReport, Note, RunInfo

# Cc control, Cf format (bidi, zero width), Cs surrogates, Co private, Cn unassigned, Zl/Zp lines.
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_NAMED_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def sanitize(text: str, max_chars: int = 500) -> str:
    """Foreign text made harmless for a terminal: invisible and control characters as escapes.

    The result is one line of at most `max_chars` characters; a longer text ends with an ellipsis.
    """
    # Only as much input as can fit: the text may be megabytes long.
    parts = [_visible(char) for char in text[: max_chars + 1]]
    shown = "".join(parts)
    if len(shown) <= max_chars:
        return shown
    return shown[: max_chars - 1] + "…"


def format_number(value: float | None) -> str:
    """A metric: 0, two-digit scientific from 1e6, 1 decimal from 100, 3 from 1, 4 from 0.001."""
    if value is None:
        return "-"
    if not isfinite(value):
        return str(value)
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e6 or size < 0.001:
        return f"{value:.2e}"
    if size >= 100:
        return f"{value:.1f}"
    return f"{value:.3f}" if size >= 1 else f"{value:.4f}"


def format_count(value: float | None) -> str:
    """A rate or a count: no decimals, thousands separated."""
    return "-" if value is None or not isfinite(value) else f"{value:,.0f}"


def format_duration(seconds: float | None) -> str:
    """`Ns`, `MmSSs` or `HhMMmSSs`."""
    if seconds is None or not isfinite(seconds):
        return "-"
    total = max(int(seconds), 0)
    hours, minutes, rest = total // 3600, total // 60 % 60, total % 60
    if hours:
        return f"{hours}h{minutes:02d}m{rest:02d}s"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def elapsed_s(run: RunInfo, now_ns: int) -> float | None:
    """Seconds since the first trainable moment; None during warm-up."""
    return None if run.trainable_ns is None else max(now_ns - run.trainable_ns, 0) / 1e9


def eta_s(run: RunInfo, iteration: int, now_ns: int) -> float | None:
    """Seconds left at the pace so far; None before the first iteration of this session."""
    elapsed = elapsed_s(run, now_ns)
    done = iteration - run.first_iteration
    if elapsed is None or done <= 0:
        return None
    return elapsed / done * max(run.max_iterations - iteration, 0)


def progress_line(report: IterationReport, run: RunInfo) -> str:
    """One line about one iteration, or about the warm-up, for a terminal without a panel."""
    if report.iteration == 0 and report.status != "Training":
        return (
            f"{sanitize(report.status, 40)} | env steps {format_count(report.env_steps)}"
            f" | buffer {format_count(report.buffer)}"
        )
    eta = eta_s(run, report.iteration, report.t_ns)
    parts = [
        f"iteration {report.iteration}/{run.max_iterations}",
        format_duration(elapsed_s(run, report.t_ns)),
        f"ETA {format_duration(eta)}",
        f"reward {format_number(report.reward_mean)}",
        f"ep len {format_number(report.episode_length)}",
        f"steps/s {format_count(report.steps_per_s)}",
        f"rows/s {format_count(report.rows_per_s)}",
        f"wall {format_number(report.wall_ms)} ms",
    ]
    if report.status != "Training":
        parts.append(sanitize(report.status, 40))
    if report.dropped:
        parts.append(f"records dropped {format_count(report.dropped)}")
    return " | ".join(parts)


def note_line(note: Note) -> str:
    """One line about an event."""
    mark = "" if note.level == "info" else f"{note.level}: "
    return mark + sanitize(note.text)


def _visible(char: str) -> str:
    if " " <= char <= "~":
        return char
    if char in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[char]
    if unicodedata.category(char) not in _HIDDEN_CATEGORIES:
        return char
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
