"""The monitor without a screen: one line per interval, or the whole view once as text.

Nothing here writes an escape code, so that the output can go into a file.
"""

import time
from collections.abc import Callable
from typing import TextIO

from unilab_core.telemetry.plain import (
    format_count,
    format_duration,
    format_number,
    sanitize,
)
from unilab_monitor.glyphs import Glyphs
from unilab_monitor.line import Line, cut, format_age, width_of
from unilab_monitor.model import Model
from unilab_monitor.panels.clocks import (
    COLLECTOR_TITLE,
    LEARNER_TITLE,
    learner_lines,
    stall_mark,
    timing_lines,
)
from unilab_monitor.panels.frame import MARGIN, inside, lower_edge, upper_edge
from unilab_monitor.panels.header import header_frame, header_lines
from unilab_monitor.panels.metrics import metrics_lines
from unilab_monitor.panels.rewards import rewards_lines
from unilab_monitor.panels.status import status_lines
from unilab_monitor.panels.system import system_lines
from unilab_monitor.sources import Source
from unilab_monitor.timing import collector_rows
from unilab_monitor.view import CollectorView, LearnerView, View

PERIOD_S = 5.0


def follow(
    source: Source,
    out: TextIO,
    *,
    period_s: float = PERIOD_S,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Print a line whenever there is something new, until the job has ended."""
    model = Model()
    printed = ""
    while True:
        view = model.fold(source.poll())
        line = plain_line(view)
        if line != printed:
            print(line, file=out, flush=True)
            printed = line
        if view.end is not None:
            return
        sleep(period_s)


def plain_line(view: View) -> str:
    """One line about the job as it is now."""
    facts = view.facts
    if view.end is not None:
        code = "" if view.end.exit_code is None else f" (exit {view.end.exit_code})"
        at = "" if view.iteration is None else f" at iteration {view.iteration}"
        return f"{_name(view)} ended{at}: {sanitize(view.end.reason)}{code}"
    if view.iteration is None:
        phases = ", ".join(f"{p.role} {p.phase}" for p in view.processes)
        return sanitize(f"{_name(view)} {view.state}" + (f": {phases}" if phases else ""))
    limit = "" if facts.max_iterations is None else f"/{facts.max_iterations}"
    parts = [
        f"iteration {view.iteration}{limit}",
        format_duration(view.elapsed_s),
        f"ETA {format_duration(view.eta_s)}",
        f"reward {format_number(view.rewards.mean)}",
        f"ep len {format_number(view.episode_length)}",
        f"steps/s {format_count(view.steps_per_s)}",
        f"rows/s {format_count(view.rows_per_s)}",
        f"wall {format_number(view.learner.wall_ms)} ms",
    ]
    if view.status not in (None, "Training"):
        parts.append(sanitize(view.status, 40))
    for role, source in (("learner", view.learner), ("collector", view.collector)):
        if source.stalled and source.age_s is not None:
            parts.append(f"{role} stalled {format_age(source.age_s)}")
    losses = {"lapped": view.lapped, "dropped": view.dropped, "invalid": view.invalid}
    parts += [f"records {name} {format_count(n)}" for name, n in losses.items() if n]
    return " | ".join(parts)


def text_view(view: View, width: int, glyphs: Glyphs) -> str:
    """The whole view as text, cards one below the other."""
    blocks: list[tuple[str, list[Line]]] = [
        ("Metrics", metrics_lines(view, width - 2, glyphs)),
        ("Rewards", rewards_lines(view, width - 2, glyphs, peak_decimals=3)),
        (_titled(LEARNER_TITLE, view.learner), learner_lines(view, width - 2, glyphs)),
        (
            _titled(COLLECTOR_TITLE, view.collector),
            timing_lines(collector_rows(view), width - 2, glyphs),
        ),
        ("System", system_lines(view, width - 2, glyphs)),
        ("Status", status_lines(view, width - 2, glyphs)),
    ]
    header = header_lines(view, width - MARGIN, glyphs, progress=True)
    frame = header_frame(view, glyphs)
    rows = [inside(line, frame.style, width, glyphs) for line in header]
    rows = [upper_edge(frame, width, glyphs), *rows, lower_edge(frame, width, glyphs)]
    lines = [_text(row) for row in rows]
    for title, rows in blocks:
        rule = glyphs.horizontal
        lines.append(f"{rule} {title} ".ljust(width, rule))
        lines += ["  " + cut(_text(row), width - 2, glyphs) for row in rows if width_of(row)]
    return "\n".join(line.rstrip() for line in lines)


def _titled(title: str, source: LearnerView | CollectorView) -> str:
    mark = stall_mark(source)
    return f"{title}  {mark}" if mark else title


def _text(line: Line) -> str:
    return "".join(text for text, _ in line)


def _name(view: View) -> str:
    return sanitize(view.facts.job or view.facts.task or "job")
