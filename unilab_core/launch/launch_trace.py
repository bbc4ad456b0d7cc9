"""The launcher's share of the RL trace: how many steps there will be, and the evaluation.

It prints its lines through the console, which holds them back while the panel owns the terminal.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from unilab_core.launch.console import Console
from unilab_core.run.job_trace import JobTrace
from unilab_core.telemetry.rl_trace import formats

EVAL = "eval"


class LaunchTrace:
    """Writes the launcher's lines; without a trace every call does nothing."""

    def __init__(self, trace: JobTrace, console: Console, *, printed: bool) -> None:
        self._trace = trace
        self._console = console
        self.printed = printed and trace.enabled
        """Whether progress lines are printed as well."""

    def begin(self) -> None:
        """The run starts."""
        total = self._trace.rhythm.total_steps
        self._trace.emitter.total_steps(total)
        self._print(formats.total_steps_line(total))

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Around the evaluation of the finished policy."""
        out, total = self._trace.emitter, self._trace.rhythm.total_steps
        for edge, event in (("start", "evaluation_started"), ("end", "evaluation_finished")):
            out.stage_edge(edge, EVAL)
            out.global_event("EVAL", total, source="Launcher", target="Policy", detail=event)
            self._print(formats.stage_line(self._trace.rhythm.style, edge, EVAL))
            if edge == "start":
                yield

    def close(self) -> None:
        """Write what is queued; say what was lost."""
        self._trace.close()
        dropped = self._trace.emitter.counters.dropped
        if dropped:
            self._console.warn(f"RL trace: {dropped} lines of the launcher were lost")

    def _print(self, line: str) -> None:
        if self.printed:
            self._console.say(line)
