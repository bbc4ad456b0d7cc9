"""Five figures of the system: a card on wide screens, one line on all others."""

from unilab_core.telemetry.plain import format_count
from unilab_monitor.glyphs import Glyphs
from unilab_monitor.line import ABSENT, Line, flow, right, shown, sparkline
from unilab_monitor.panels.frame import Frame
from unilab_monitor.panels.line_panel import LinePanel
from unilab_monitor.view import View

VALUE_WIDTH = 12


class System(LinePanel):
    """The card of wide screens, with the course of the throughput below the figures."""

    def lines(self, view: View, width: int) -> list[Line]:
        """Figures one per line, then the course of Steps/s."""
        return system_lines(view, width, self.glyphs)

    def frame(self, view: View) -> Frame:
        """The title."""
        del view
        return Frame(title=(("System", "title"),))


class SystemLine(LinePanel):
    """The summary line of screens below 120 columns."""

    def lines(self, view: View, width: int) -> list[Line]:
        """All figures in one line, or two where it is too narrow."""
        cells: list[Line] = [
            ((f"{name} ", "label"), (text, "value")) for name, text in system_figures(view)
        ]
        return flow(cells, width, (f" {self.glyphs.separator} ", "frame"))


def system_figures(view: View) -> list[tuple[str, str]]:
    """Name and text of each figure."""
    facts = view.facts
    timeout = ABSENT if view.timeout_rate is None else f"{100 * view.timeout_rate:.1f}%"
    return [
        ("Buffer", format_count(view.buffer_rows)),
        ("Timeout Rate", timeout),
        ("Envs", format_count(facts.num_envs)),
        ("Batch/Rank", format_count(facts.batch_per_rank)),
        ("CUDA MPS", shown(facts.cuda_mps) if facts.cuda_mps else ABSENT),
    ]


def system_lines(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """The card's lines."""
    label_width = max(width - VALUE_WIDTH, 0)
    lines: list[Line] = [
        ((f"{name:<{label_width}}", "label"), (right(text, VALUE_WIDTH), "value"))
        for name, text in system_figures(view)
    ]
    lines.append(
        (
            (f"{'Env Steps':<{label_width}}", "label"),
            (right(format_count(view.env_steps), VALUE_WIDTH), "value"),
        )
    )
    course = sparkline(view.steps_course, width, glyphs)
    if course:
        lines += [(), (("Steps/s", "dim"),), ((right(course, width), "spark"),)]
    return lines
