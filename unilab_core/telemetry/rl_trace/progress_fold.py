"""Progress lines folded into sessions, steps and stages. Lines are numbers into the store.

Stage lines name no step: they belong to the last loaded batch, else to the last header. `Step N`
lines name theirs, and the rollout of step N + 1 may begin before the training of step N ends.

A stage segment is `[start line, end line]`, either -1 if unseen. A header closes what is open; an
end that comes later still belongs to the segment it ends.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from unilab_core.telemetry.rl_trace.progress_lines import Kind
from unilab_core.telemetry.rl_trace.progress_store import ProgressStore

KEPT_STEPS = 2_000
"""Steps of a session whose stages are kept; of older ones only the header is."""
NO_LINE = -1

Segment = list[int]


@dataclass(slots=True)
class StepLines:
    """Lines of one step."""

    step: int
    header: int = NO_LINE
    stages: dict[str, list[Segment]] = field(default_factory=dict)
    rollout: Segment = field(default_factory=lambda: [NO_LINE, NO_LINE])
    train: Segment = field(default_factory=lambda: [NO_LINE, NO_LINE])
    train_repeats: bool = False
    load_try: int = NO_LINE
    load_done: int = NO_LINE
    epoch: int = -1
    batch: int = -1


@dataclass(slots=True)
class Session:
    """From one start of the run to its end."""

    number: int
    total: int = -1
    current: int = -1
    owner: int = -1
    """Step of the last loaded batch."""
    header_steps: array[int] = field(default_factory=lambda: array("q"))
    header_lines: array[int] = field(default_factory=lambda: array("q"))
    steps: dict[int, StepLines] = field(default_factory=dict)
    open: dict[str, Segment] = field(default_factory=dict)
    cut_off: dict[str, Segment] = field(default_factory=dict)
    """Open when a header came."""
    seen_stages: dict[str, None] = field(default_factory=dict)
    first: int = NO_LINE
    """Place of the first line among all lines in file order."""
    last: int = NO_LINE

    def step_of_stages(self) -> int:
        """The step that stage lines belong to now."""
        return self.owner if self.owner >= 0 else max(self.current, 0)

    def lines_of(self, step: int) -> StepLines:
        """Lines of a step, made on first sight; the oldest are given up beyond the limit."""
        found = self.steps.get(step)
        if found is None:
            found = self.steps[step] = StepLines(step)
            if len(self.steps) > KEPT_STEPS:
                del self.steps[next(iter(self.steps))]
        return found


class ProgressFold:
    """Incremental fold over the files in order of name; starts over when the past changes."""

    def __init__(self, store: ProgressStore) -> None:
        self._store = store
        self._restart()

    def update(self) -> None:
        """Fold what was added since; everything again if lines came before folded ones."""
        names = sorted(self._store.files)
        folded = [name for name in names if self._folded.get(name, 0) > 0]
        newest = folded[-1] if folded else ""
        if any(
            name < newest and len(self._store.files[name].lines) > self._folded.get(name, 0)
            for name in names
        ):
            self._restart()
        for name in names:
            lines = self._store.files[name].lines
            for line in lines[self._folded.get(name, 0) :]:
                self._feed(line)
            self._folded[name] = len(lines)

    def _restart(self) -> None:
        self.sessions: list[Session] = [Session(1)]
        self.order = array("q")
        """All lines in file order."""
        self.num_tasks = 0
        self.num_disagg = 0
        self.num_plain_stages = 0
        self.throughput = NO_LINE
        self._folded: dict[str, int] = {}

    def _feed(self, line: int) -> None:
        store = self._store
        kind, number = Kind(store.kind[line]), store.number[line]
        session = self.sessions[-1]
        if kind is Kind.TOTAL:
            if session.current >= 0:
                session = self._new_session()
            session.total = number
        elif kind is Kind.HEADER:
            if number < session.current:
                session = self._new_session()
            self._header(session, line, number)
        elif kind in (Kind.STAGE_START, Kind.STAGE_END):
            self._stage(session, kind, line)
        elif kind is Kind.TASK:
            self.num_tasks += 1
        elif kind is Kind.THROUGHPUT:
            self.throughput = line
        else:
            _window(session.lines_of(number), kind, line)
            if kind is Kind.LOAD_DONE:
                session.owner = number
        session.first = len(self.order) if session.first == NO_LINE else session.first
        session.last = len(self.order)
        self.order.append(line)

    def _new_session(self) -> Session:
        old = self.sessions[-1]
        session = Session(old.number + 1, total=old.total)
        self.sessions.append(session)
        if len(self.sessions) > 2:  # steps of older sessions are not shown
            self.sessions[-3].steps.clear()
        return session

    def _header(self, session: Session, line: int, step: int) -> None:
        if step == session.current:
            return
        session.cut_off.update(session.open)
        session.open.clear()
        session.current = step
        session.header_steps.append(step)
        session.header_lines.append(line)
        lines = session.lines_of(step)
        lines.header = line
        lines.epoch, lines.batch = self._store.epoch[line], self._store.batch[line]

    def _stage(self, session: Session, kind: Kind, line: int) -> None:
        name = self._store.texts[self._store.text[line]]
        if self._store.disagg[line]:
            self.num_disagg += 1
        else:
            self.num_plain_stages += 1
        session.seen_stages.setdefault(name)
        segments = session.lines_of(session.step_of_stages()).stages.setdefault(name, [])
        if kind is Kind.STAGE_START:
            session.cut_off.pop(name, None)
            session.open[name] = [line, NO_LINE]
            segments.append(session.open[name])
            return
        segment = session.open.pop(name, None) or session.cut_off.pop(name, None)
        if segment is None:
            segments.append([NO_LINE, line])
        else:
            segment[1] = line
            if not segments:  # the end of a stage of an earlier step made an empty entry
                del session.lines_of(session.step_of_stages()).stages[name]


def _window(lines: StepLines, kind: Kind, line: int) -> None:
    if kind is Kind.ROLLOUT_STARTED:
        lines.rollout = [line, NO_LINE]
    elif kind is Kind.ROLLOUT_FINISHED:
        lines.rollout[1] = line
    elif kind is Kind.TRAIN_STARTED:
        lines.train_repeats |= lines.train[0] != NO_LINE
        lines.train = [line, NO_LINE]
    elif kind is Kind.TRAIN_FINISHED:
        lines.train[1] = line
    elif kind is Kind.LOAD_TRY:
        lines.load_try, lines.load_done = line, NO_LINE
    else:
        lines.load_done = line
