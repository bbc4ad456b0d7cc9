"""The card at the top: what runs, how far it is, how fast it goes, and in which state it is."""

from unilab_core.telemetry.plain import format_count, format_duration, sanitize
from unilab_monitor.glyphs import Glyphs
from unilab_monitor.line import Line, Span, cut, fit, flow, format_age, pad, width_of
from unilab_monitor.panels.line_panel import LinePanel
from unilab_monitor.view import View

PROGRESS_FROM_HEIGHT = 30
"""Screens lower than this do without the progress line."""


class Header(LinePanel):
    """Draws its own frame: a changing title then costs one line, not a repaint of the card."""

    def lines(self, view: View, width: int) -> list[Line]:
        """Frame, one or more rows of figures, progress."""
        return header_lines(
            view, width, self.glyphs, progress=self.screen.size.height >= PROGRESS_FROM_HEIGHT
        )


def header_lines(view: View, width: int, glyphs: Glyphs, *, progress: bool) -> list[Line]:
    """The whole card."""
    inner = width - 4
    side = glyphs.vertical
    separator: Span = (f" {glyphs.separator} ", "frame")
    body = flow(_figures(view), inner, separator)
    body += flow(_state(view, glyphs), inner, separator)
    if progress:
        body.append(_progress(view, inner, glyphs))
    framed = [((f"{side} ", "frame"), *pad(line, inner), (f" {side}", "frame")) for line in body]
    return [
        _edge(_title(view, glyphs), _iteration(view), width, glyphs, glyphs.corners[:2]),
        *framed,
        _edge(_name(view), _place(view), width, glyphs, glyphs.corners[2:]),
    ]


def device_name(view: View) -> str:
    """`GPUs N`, or the device itself where the learner has no GPU."""
    facts = view.facts
    if facts.num_gpus:
        return f"GPUs {facts.num_gpus}"
    return (facts.device or "").partition(":")[0].upper()


def _title(view: View, glyphs: Glyphs) -> Line:
    facts = view.facts
    dot: Span = (f" {glyphs.middle_dot} ", "dim")
    algo = sanitize(facts.algo or "UniLab")
    spans: list[Span] = [(algo.upper() if facts.algo else algo, "title")]
    for text, style in (
        (facts.task, "strong"),
        (facts.sim, "label"),
        (device_name(view), "label"),
    ):
        if text:
            spans += [dot, (sanitize(text), style)]
    return tuple(spans)


def _iteration(view: View) -> Line:
    if view.iteration is None:
        return ()
    limit = view.facts.max_iterations
    whole = f"/{limit:,}" if limit else ""
    return (("iteration ", "label"), (f"{view.iteration:,}", "strong"), (whole, "label"))


def _name(view: View) -> Line:
    return ((sanitize(view.facts.job), "dim"),) if view.facts.job else ()


def _place(view: View) -> Line:
    return ((sanitize(view.facts.run_dir), "dim"),) if view.facts.run_dir else ()


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
        good = view.end.exit_code in (0, None)
        cells: list[Line] = [
            ((f"{glyphs.dot} ended ", "strong" if good else "bad strong"),),
            ((sanitize(view.end.reason), "value" if good else "bad"),),
        ]
        if view.end.exit_code is not None:
            cells.append(((f"exit {view.end.exit_code}", "value" if good else "bad"),))
        if view.end.ended_utc:
            cells.append(((sanitize(view.end.ended_utc), "dim"),))
        return cells
    if view.state == "starting":
        return [((f"{glyphs.dot} starting", "accent"),)]
    cells = []
    if view.warm_up:
        cells.append(((f"{glyphs.dot} {sanitize(_warm_up_name(view))}", "warn strong"),))
        cells.append((("the clock starts with the first update", "dim"),))
    elif view.status not in (None, "Training"):
        cells.append(((f"{glyphs.dot} {sanitize(view.status)}", "warn strong"),))
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


def _edge(left: Line, end: Line, width: int, glyphs: Glyphs, corners: str) -> Line:
    """A frame line with a text on either side; the right one gives way first."""
    rule = glyphs.horizontal
    left = _inset(left)
    end = _inset(end)
    room = width - 4
    if width_of(left) + width_of(end) + 1 > room:
        kept = room - width_of(left) - 1
        end = _cut_left(end, kept, glyphs) if kept >= 12 else ()
    if width_of(left) > room:
        left = ((cut("".join(text for text, _ in left), room, glyphs), "label"),)
    fill = room - width_of(left) - width_of(end)
    return (
        (corners[0] + rule, "frame"),
        *left,
        (rule * fill, "frame"),
        *end,
        (rule + corners[1], "frame"),
    )


def _inset(line: Line) -> Line:
    return ((" ", "frame"), *line, (" ", "frame")) if line else ()


def _cut_left(line: Line, width: int, glyphs: Glyphs) -> Line:
    """The end of a text (a path says more with its last part)."""
    text = "".join(text for text, _ in line)
    style = line[1][1]
    tail = text[-(width - 2) :] if width > 2 else ""
    return ((fit(f" {glyphs.ellipsis}{tail}", width, glyphs), style),)
