"""Messages between the pages and the feed. None of them holds anything that changes."""

from __future__ import annotations

from textual.message import Message

from unilab_core.telemetry.rl_trace.flow_figures import Distribution
from unilab_core.telemetry.rl_trace.snapshot import Snapshot
from unilab_core.telemetry.rl_trace.trace_view import TraceView
from unilab_core.telemetry.rl_trace.trajectory_view import TrajectoryView


class SnapshotReady(Message):
    """New figures."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        super().__init__()


class TraceReady(Message):
    """A trace that was asked for; `trace` None: no such trajectory in the sample flow."""

    def __init__(
        self,
        name: str,
        trace: TraceView | None,
        trajectory: TrajectoryView | None,
        raw_json: str,
    ) -> None:
        self.name = name
        self.trace = trace
        self.trajectory = trajectory
        self.raw_json = raw_json
        super().__init__()


class StepReady(Message):
    """Transitions of one step, as asked for."""

    def __init__(self, step: int, transitions: dict[str, Distribution]) -> None:
        self.step = step
        self.transitions = transitions
        super().__init__()


class LeavePages(Message):
    """Back to what the pages are beside of."""


class FeedFailed(Message):
    """The feed has ended by an error of its own."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__()


class OpenFlow(Message):
    """Show the sample flow of a step, with the transition that a stage is about."""

    def __init__(self, step: int | None, transition: str | None) -> None:
        self.step = step
        self.transition = transition
        super().__init__()


class OpenTrace(Message):
    """Show the trace of a trajectory."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__()


class OpenTrajectory(Message):
    """Show the turns of a trajectory, from a turn on."""

    def __init__(self, name: str, turn: int | None = None) -> None:
        self.name = name
        self.turn = turn
        super().__init__()
