"""The lines under the cards: what the figures mean, which process does what, the newest event."""

from unilab_core.telemetry.plain import sanitize
from unilab_monitor.glyphs import Glyphs
from unilab_monitor.line import Line, Span, flow, format_age
from unilab_monitor.panels.line_panel import LinePanel
from unilab_monitor.view import ProcessView, View

LABEL_WIDTH = 11
SLOW_BEAT_S = 2.0
DEAD_BEAT_S = 10.0

_LEVEL_STYLES = {"warning": "warn", "error": "bad"}


class Status(LinePanel):
    """Diagnosis, processes, event."""

    def lines(self, view: View, width: int) -> list[Line]:
        """Three labelled blocks."""
        return status_lines(view, width, self.glyphs)


def status_lines(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """All lines; the processes may take more than one."""
    lines = [_diagnosis(view, glyphs)]
    cells = [_process(process, view, glyphs) for process in view.processes]
    for index, line in enumerate(flow(cells, width - LABEL_WIDTH, ("   ", "value"))):
        lines.append((_label("Processes" if index == 0 else ""), *line))
    if view.events:
        event = view.events[-1]
        style = _LEVEL_STYLES.get(event.level, "value")
        when: Span = (f"{format_age(event.age_s)} ago  ", "dim")
        lines.append((_label("Event"), when, (sanitize(event.text), style)))
    return lines


def _label(text: str) -> Span:
    return f"{text:<{LABEL_WIDTH}}", "label"


def _diagnosis(view: View, glyphs: Glyphs) -> Line:
    """The most important finding in one line; how many more there are is said."""
    if view.learner.alarm is not None:
        return (
            _label("Diagnosis"),
            (f"{glyphs.alarm} ", "bad"),
            (sanitize(view.learner.alarm), "bad strong"),
        )
    if not view.findings:
        return (_label("Diagnosis"), ("nothing stands out", "dim"))
    first, *rest = view.findings
    more = f"  (+{len(rest)} more)" if rest else ""
    return (
        _label("Diagnosis"),
        (f"{glyphs.dot} ", "warn"),
        (sanitize(first.finding), "value"),
        (more, "dim"),
        (f"  {glyphs.arrow} ", "dim"),
        (sanitize(first.check), "accent"),
    )


def _process(process: ProcessView, view: View, glyphs: Glyphs) -> Line:
    several = any(other.role == process.role and other.rank for other in view.processes)
    name = f"{process.role}-{process.rank}" if several else process.role
    silent_s = process.age_s or 0.0
    if not process.is_alive or view.end is not None:
        dot = "bad" if process.state == "failed" else "dim"
        note = "" if process.is_alive else process.state
    elif process.os_state == "T":
        dot, note = "bad", "stopped (state T)"
    elif silent_s > SLOW_BEAT_S:
        dot, note = ("bad" if silent_s > DEAD_BEAT_S else "warn"), f"silent {format_age(silent_s)}"
    else:
        dot, note = "good", ""
    spans: list[Span] = [
        (f"{glyphs.dot} ", dot),
        (f"{sanitize(name)} ", "label"),
        (f"{process.pid} ", "dim"),
        (sanitize(process.phase.rpartition("/")[2]), "value"),
    ]
    if process.awaits:
        spans.append((f" (awaits {sanitize(process.awaits)})", "dim"))
    if note:
        spans.append((f" {note}", dot if dot != "good" else "dim"))
    return tuple(spans)
