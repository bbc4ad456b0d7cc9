"""Losses and policy state, training diagnostics, ingress gauges, in this order."""

from unilab_core.telemetry.metric_schema import METRICS
from unilab_core.telemetry.plain import format_count, format_number
from unilab_monitor.glyphs import Glyphs
from unilab_monitor.line import Line, columns, fit, right, shown
from unilab_monitor.panels.frame import Frame
from unilab_monitor.panels.line_panel import LinePanel
from unilab_monitor.view import View

ALARM_ABOVE = 10.0
VALUE_WIDTH = 8
GAP = 2
INDENT = "  "

_LOSS = ("Loss/", "Policy/")
_INGRESS = "Train/replay_ingress_"
_PLACES = {tag: place for place, tag in enumerate(METRICS)}
_WHOLE_UNITS = ("slots", "batches", "rollouts", "calls")


class Metrics(LinePanel):
    """The metrics card."""

    def lines(self, view: View, width: int) -> list[Line]:
        """One row per metric, in as many columns as fit."""
        return metrics_lines(view, width, self.glyphs)

    def frame(self, view: View) -> Frame:
        """The title."""
        del view
        return Frame(title=(("Metrics", "title"),))


def metrics_lines(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """Rows in groups; two columns where labels and values fit twice."""
    if not view.metrics:
        return [(("no update yet", "dim"),)]
    rows = [(_label(tag), *_figure(tag, value)) for tag, value in _ordered(view)]
    label_width = max(len(label) for label, _, _ in rows)
    full = label_width + 1 + VALUE_WIDTH
    count_ = 2 if width >= 2 * full + GAP and len(rows) > 6 else 1
    column_width = (width - GAP * (count_ - 1)) // count_
    label_width = min(label_width, max(column_width - 1 - VALUE_WIDTH, 4))
    lines: list[Line] = []
    for label, text, style in rows:
        value = right(text, VALUE_WIDTH)
        lines.append(((fit(label, label_width, glyphs), "label"), (" ", "value"), (value, style)))
    return columns(lines, count=count_, width=width, gap=GAP)


def _ordered(view: View) -> list[tuple[str, float]]:
    """Group by group in the order of the schema, whatever came first; unknown tags by name."""
    return sorted(view.metrics.items(), key=lambda item: (_group(item[0]), _place(item[0])))


def _place(tag: str) -> tuple[int, str]:
    return _PLACES.get(tag, len(_PLACES)), tag


def _group(tag: str) -> int:
    if tag.startswith(_LOSS):
        return 0
    if tag.startswith(_INGRESS):
        return 2
    return 1 if tag.startswith("Train/") else 3


def _label(tag: str) -> str:
    spec = METRICS.get(tag)
    label = spec.label if spec else shown(tag)
    return label if _group(tag) in (0, 3) else INDENT + label


def _figure(tag: str, value: float) -> tuple[str, str]:
    if value != value:
        return "nan", "bad strong"
    spec = METRICS.get(tag)
    if spec is not None and spec.unit in _WHOLE_UNITS and value == round(value):
        return format_count(value), "value"
    alarm = _group(tag) == 0 and value > ALARM_ABOVE
    return format_number(value), "bad" if alarm else "value"
