"""The lines under the cards: what the figures mean, which process does what, the newest event."""

from textwrap import wrap

from unilab_monitor.glyphs import Glyphs
from unilab_monitor.line import Line, Span, cells, flow, format_age, shown
from unilab_monitor.panels.line_panel import LinePanel
from unilab_monitor.view import ProcessView, View

LABEL_WIDTH = 11
SHORT_BELOW_HEIGHT = 32
STACKED_BELOW = 96
STACKED_HEIGHT = 56
"""Stacked cards need this many rows before there is room for more words here."""

SLOW_BEAT_S = 2.0
DEAD_BEAT_S = 10.0
STARTING_BEAT_S = 30.0
"""Imports and compilation do not beat; a process that starts is given this long."""

_LEVEL_STYLES = {"warning": "warn", "error": "bad"}


class Status(LinePanel):
    """Diagnosis, processes, event."""

    def lines(self, view: View, width: int) -> list[Line]:
        """Three labelled blocks, fewer words on a low screen."""
        columns, height = self.screen.size
        short = height < (SHORT_BELOW_HEIGHT if columns >= STACKED_BELOW else STACKED_HEIGHT)
        return status_lines(view, width, self.glyphs, short=short)


def status_lines(view: View, width: int, glyphs: Glyphs, *, short: bool = False) -> list[Line]:
    """All lines; the processes may take more than one."""
    lines = _diagnosis(view, width, glyphs, one_line=short)
    cells = [_process(process, view, glyphs, short=short) for process in view.processes]
    for index, line in enumerate(flow(cells, width - LABEL_WIDTH, ("   ", "value"))):
        lines.append((_label("Processes" if index == 0 else ""), *line))
    if view.events and not short:
        event = view.events[-1]
        style = _LEVEL_STYLES.get(event.level, "value")
        when: Span = (f"{format_age(event.age_s)} ago  ", "dim")
        lines.append((_label("Event"), when, (shown(event.text), style)))
    return lines


def _label(text: str) -> Span:
    return f"{text:<{LABEL_WIDTH}}", "label"


def _diagnosis(view: View, width: int, glyphs: Glyphs, *, one_line: bool) -> list[Line]:
    """The most important finding, in one line where it fits; how many more there are is said."""
    check = ""
    if view.learner.alarm is not None:
        mark, style = (f"{glyphs.alarm} ", "bad"), "bad strong"
        text = shown(view.learner.alarm)
    elif view.findings:
        first, *rest = view.findings
        mark, style = (f"{glyphs.dot} ", "warn"), "value"
        text = shown(first.finding) + (f" (+{len(rest)} more)" if rest else "")
        check = f"{glyphs.arrow} {shown(first.check)}"
    else:
        return [(_label("Diagnosis"), ("nothing stands out", "dim"))]
    room = width - LABEL_WIDTH - len(mark[0])
    if one_line or cells(text) + 2 + cells(check) <= room:
        return [(_label("Diagnosis"), mark, (text, style), (f"  {check}", "accent"))]
    parts: list[Span] = [(part, style) for part in wrap(text, max(room, 20))]
    parts += [(part, "accent") for part in wrap(check, max(room, 20))]
    indent = (" " * len(mark[0]), "dim")
    return [
        (_label("" if index else "Diagnosis"), indent if index else mark, part)
        for index, part in enumerate(parts)
    ]


def _process(process: ProcessView, view: View, glyphs: Glyphs, *, short: bool) -> Line:
    several = any(other.role == process.role and other.rank for other in view.processes)
    name = f"{process.role}-{process.rank}" if several else process.role
    silent_s = process.age_s or 0.0
    if not process.is_alive or view.end is not None:
        dot = "bad" if process.state == "failed" else "dim"
        note = "" if process.is_alive else process.state
    elif process.os_state == "T":
        dot, note = "bad", "stopped (state T)"
    elif silent_s > (STARTING_BEAT_S if process.phase.startswith("startup/") else SLOW_BEAT_S):
        dot, note = ("bad" if silent_s > DEAD_BEAT_S else "warn"), f"silent {format_age(silent_s)}"
    else:
        dot, note = "good", ""
    spans: list[Span] = [
        (f"{glyphs.dot} ", dot),
        (f"{shown(name)} ", "label"),
        ("" if short else f"{process.pid} ", "dim"),
        (shown(process.phase.rpartition("/")[2]), "value"),
    ]
    if process.awaits and not short:
        spans.append((f" (awaits {shown(process.awaits)})", "dim"))
    if note:
        spans.append((f" {note}", dot if dot != "good" else "dim"))
    return tuple(spans)
