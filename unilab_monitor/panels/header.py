"""The card at the top: what runs, how far it is, how fast it goes, and in which state it is."""

from unilab_core.telemetry.plain import format_count, format_duration
from unilab_monitor.glyphs import Glyphs
from unilab_monitor.line import Line, Span, flow, format_age, shown
from unilab_monitor.panels.frame import Frame
from unilab_monitor.panels.line_panel import LinePanel
from unilab_monitor.view import View

PROGRESS_FROM_HEIGHT = 30
"""Screens lower than this do without the progress line."""


GOOD_ENDS = (None, 0, 129, 130, 143)
"""Done, or stopped by a signal: somebody wanted it."""


class Header(LinePanel):
    """Title on the frame's upper edge, job and directory on the lower one."""

    def lines(self, view: View, width: int) -> list[Line]:
        """One or more rows of figures, the state, the progress."""
        progress = self.screen.size.height >= PROGRESS_FROM_HEIGHT
        return header_lines(view, width, self.glyphs, progress=progress)

    def frame(self, view: View) -> Frame:
        """Algorithm, task, simulator, device; iteration; job; run directory."""
        return header_frame(view, self.glyphs)


def header_lines(view: View, width: int, glyphs: Glyphs, *, progress: bool) -> list[Line]:
    """What is inside the card."""
    separator: Span = (f" {glyphs.separator} ", "frame")
    state = _state(view, glyphs)
    if view.end is None:
        lines = flow([*_figures(view), *state], width, separator)
    else:
        lines = flow(_figures(view), width, separator) + flow(state, width, separator)
    if progress:
        lines.append(_progress(view, width, glyphs))
    return lines


def header_frame(view: View, glyphs: Glyphs) -> Frame:
    """What is written on the card's edges."""
    return Frame(
        title=_title(view, glyphs),
        title_right=_iteration(view),
        foot=_dim(view.facts.job),
        foot_right=_dim(view.facts.run_dir),
    )


def device_name(view: View) -> str:
    """`GPUs N`, or the device itself where the learner has no GPU."""
    facts = view.facts
    if facts.num_gpus:
        return f"GPUs {facts.num_gpus}"
    return (facts.device or "").partition(":")[0].upper()


def _title(view: View, glyphs: Glyphs) -> Line:
    facts = view.facts
    dot: Span = (f" {glyphs.middle_dot} ", "dim")
    algo = shown(facts.algo or "UniLab")
    spans: list[Span] = [(algo.upper() if facts.algo else algo, "title")]
    for text, style in (
        (facts.task, "strong"),
        (facts.sim, "label"),
        (device_name(view), "label"),
    ):
        if text:
            spans += [dot, (shown(text), style)]
    return tuple(spans)


def _iteration(view: View) -> Line:
    if view.iteration is None:
        return ()
    limit = view.facts.max_iterations
    whole = f"/{limit:,}" if limit else ""
    return (("iteration ", "label"), (f"{view.iteration:,}", "strong"), (whole, "label"))


def _dim(text: str | None) -> Line:
    return ((shown(text), "dim"),) if text else ()


def _figures(view: View) -> list[Line]:
    elapsed = format_duration(view.elapsed_s)
    return [
        _cell("Elapsed", elapsed),
        _cell("ETA", format_duration(view.eta_s)),
        _cell("Ep Len", format_count(view.episode_length)),
        _cell("Steps/s", format_count(view.steps_per_s), "strong"),
        _cell("Rows/s", format_count(view.rows_per_s)),
        (("Avg 2s ", "label"), (f"(n={view.window_samples})", "value")),
    ]


def _cell(label: str, figure: str, style: str = "value") -> Line:
    return ((f"{label} ", "label"), (figure, style))


def _state(view: View, glyphs: Glyphs) -> list[Line]:
    """Nothing while the job trains as it should."""
    if view.end is not None:
        good = view.end.exit_code in GOOD_ENDS
        cells: list[Line] = [
            ((f"{glyphs.dot} ended ", "strong" if good else "bad strong"),),
            ((shown(view.end.reason), "value" if good else "bad"),),
        ]
        if view.end.exit_code is not None:
            cells.append(((f"exit {view.end.exit_code}", "value" if good else "bad"),))
        if view.end.ended_utc:
            cells.append(((shown(view.end.ended_utc), "dim"),))
        return cells
    if view.state == "starting" or (view.state == "running" and view.iteration is None):
        return [((f"{glyphs.dot} starting", "accent"),)]
    cells = []
    if view.warm_up:
        cells.append(((f"{glyphs.dot} {shown(_warm_up_name(view))}", "warn strong"),))
        cells.append((("the clock starts with the first update", "dim"),))
    elif view.status not in (None, "Training"):
        cells.append(((f"{glyphs.dot} {shown(view.status)}", "warn strong"),))
    if view.state == "stalled":
        ages = [
            s.age_s for s in (view.learner, view.collector) if s.stalled and s.age_s is not None
        ]
        text = f"stalled {format_age(max(ages))}" if ages else "stalled"
        cells.append(((f"{glyphs.dot} {text}", "bad strong"),))
    return cells


def _warm_up_name(view: View) -> str:
    return view.status if view.status not in (None, "Training") else "Warm-up"


def _progress(view: View, width: int, glyphs: Glyphs) -> Line:
    limit = view.facts.max_iterations
    fraction = min((view.iteration or 0) / limit, 1.0) if limit else 0.0
    figure = f" {100 * fraction:3.0f}%" if limit else "     "
    room = max(width - len(figure), 0)
    done = round(fraction * room)
    return (
        (glyphs.progress_done * done, "accent"),
        (glyphs.progress_rest * (room - done), "frame"),
        (figure, "label"),
    )
