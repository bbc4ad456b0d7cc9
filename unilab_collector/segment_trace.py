"""The collector's share of the RL trace: what the traced environments do, segment by segment.

    opened -> dispatched -> started -> [ act x 8, environment x 8 ] ... -> finished -> scored

The loops say when things happen; times are taken at once (one clock reading), text is made in
`publish`, which they call while the other process works. A turn is `TURN_TICKS` vector steps: one
line per step would be more bytes than a person reads. Events of a turn are written when it ends, so
a monitor sees a segment grow.

Without a trace every method returns at its first line.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from unilab_core.contracts import StepResult
from unilab_core.run.job_trace import JobTrace, silent_trace
from unilab_core.telemetry.rl_trace.formats import Stage, Status
from unilab_core.telemetry.rl_trace.trajectory_record import TrajectoryRecord, TurnRecord

TURN_TICKS = 8
MAX_SHOWN_ACTIONS = 16
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TracedTask:
    """What a trajectory says about its environment."""

    name: str
    obs_width: int
    """Numbers that the actor is given per step."""


@dataclass(slots=True)
class _Turn:
    """Some vector steps of a segment, all traced environments together (T of them)."""

    start_ns: int
    """Unix, as every time here."""
    acted_ns: int = 0
    end_ns: int = 0
    act_ns: int = 0
    env_ns: int = 0
    ticks: int = 0
    reward: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """[T] summed."""
    actions: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    """[T, A] of the last step."""
    terminated: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    truncated: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))


@dataclass(slots=True)
class _Segment:
    number: int
    opened_ns: int
    dispatched_ns: int = 0
    started_ns: int = 0
    version: int = 0
    turns: list[_Turn] = field(default_factory=list)
    num_shown: int = 0
    """Turns that are written."""
    head_shown: bool = False


class SegmentTrace:
    """Collects one segment at a time and writes it in pieces.

    Args:
        trace: where to write.
        task: what trajectories say about the environment.
        actor: component that answers with actions, as the rows name it.
    """

    def __init__(self, trace: JobTrace, task: TracedTask, *, actor: str) -> None:
        self._trace = trace
        self._on = trace.enabled and bool(trace.traced_envs)
        self._task = task
        self._actor = actor
        self._envs = np.array(trace.traced_envs, dtype=np.int64)
        self._segment: _Segment | None = None
        self._done: list[_Segment] = []
        self._next_number = 0
        self._asked_ns = 0

    @classmethod
    def silent(cls) -> Self:
        """A trace that goes nowhere."""
        return cls(silent_trace(), TracedTask("", 0), actor="")

    def opened(self) -> None:
        """The observations of the next step are there; opens a segment where none is open."""
        if self._on and self._segment is None:
            self._segment = _Segment(self._next_number, time.time_ns())
            self._next_number += 1

    def dispatched(self) -> None:
        """A free slot was granted (ring)."""
        segment = self._segment
        if segment is not None and segment.dispatched_ns == 0:
            segment.dispatched_ns = time.time_ns()

    def asked(self) -> None:
        """The actor has the observations: through the slot a dispatch, after one the start."""
        segment = self._segment
        if segment is None:
            return
        self._asked_ns = time.time_ns()
        if segment.dispatched_ns == 0:
            segment.dispatched_ns = self._asked_ns
        elif segment.started_ns == 0:
            segment.started_ns = self._asked_ns

    def acted(self, policy_version: int) -> None:
        """Actions are there, of this version."""
        segment = self._segment
        if segment is None:
            return
        now_ns = time.time_ns()
        if segment.started_ns == 0:
            # The first answer through the slot waits for the update of the rollout before, which
            # is no time of the model; and the weights in use are those after it.
            segment.started_ns = now_ns
        since_ns = max(self._asked_ns, segment.started_ns)
        if not segment.turns:
            segment.version = policy_version
        if not segment.turns or segment.turns[-1].ticks == TURN_TICKS:
            segment.turns.append(self._new_turn(since_ns))
        turn = segment.turns[-1]
        turn.acted_ns = now_ns
        turn.act_ns += now_ns - since_ns

    def stepped(self) -> None:
        """The environments have taken the step."""
        if self._segment is not None:
            turn = self._segment.turns[-1]
            turn.end_ns = time.time_ns()
            turn.env_ns += turn.end_ns - turn.acted_ns

    def took(self, actions: np.ndarray, result: StepResult) -> None:
        """What the step was: actions[E, A] and what came of them."""
        segment = self._segment
        if segment is None:
            return
        turn = segment.turns[-1]
        turn.ticks += 1
        envs = self._envs
        turn.reward += result.reward[envs]
        turn.terminated |= result.terminated[envs]
        turn.truncated |= result.truncated[envs]
        turn.actions = actions[envs]
        ticks = (len(segment.turns) - 1) * TURN_TICKS + turn.ticks
        if ticks >= self._trace.rhythm.segment_ticks:
            self._done.append(segment)
            self._segment = None

    def publish(self) -> None:
        """Write what has been completed since the last call."""
        if not self._on:
            return
        for segment in self._done:
            self._show(segment)
            self._finish(segment)
        self._done.clear()
        if self._segment is not None:
            self._show(self._segment)
        self._trace.note_losses()

    def cancelled(self) -> None:
        """The open segment will never be whole: the run ends."""
        self.publish()
        segment, self._segment = self._segment, None
        if segment is not None and segment.turns:
            self._rows(
                segment,
                Stage.ROLLOUT_FINISH,
                time.time_ns(),
                ("Collector", "Collector"),
                ["cancelled_run_ended"],
                Status.CANCELLED,
            )

    # Private

    def _new_turn(self, start_ns: int) -> _Turn:
        size = len(self._envs)
        return _Turn(
            start_ns,
            reward=np.zeros(size),
            terminated=np.zeros(size, bool),
            truncated=np.zeros(size, bool),
        )

    def _show(self, segment: _Segment) -> None:
        """The head once the actor has answered, and the turns that are complete."""
        if not segment.turns:
            return
        if not segment.head_shown:
            self._show_head(segment)
        last = segment.turns[-1]
        is_whole = last.ticks == TURN_TICKS or segment is not self._segment
        num_ready = len(segment.turns) - (0 if is_whole else 1)
        for turn in segment.turns[segment.num_shown : num_ready]:
            self._show_turn(segment, turn)
        segment.num_shown = max(num_ready, segment.num_shown)

    def _show_head(self, segment: _Segment) -> None:
        segment.head_shown = True
        step = self._step(segment)
        self._trace.emitter.prompt_event(
            self._trace.uid(segment.number),
            Stage.DATA_PREPROCESS,
            step,
            source="Environment",
            target="Collector",
            detail="uid_generated",
            unix_ms=segment.opened_ns // NS_PER_MS,
        )
        asks = ("Collector", self._actor)
        sent = ["dispatched_to_worker"]
        self._rows(segment, Stage.ROLLOUT_DISPATCH, segment.dispatched_ns, asks, sent)
        start = [f"agent_started_policy_version={segment.version}"]
        self._rows(segment, Stage.ROLLOUT_START, segment.started_ns, asks, start)

    def _show_turn(self, segment: _Segment, turn: _Turn) -> None:
        asks, answers = ("Collector", self._actor), (self._actor, "Collector")
        generate = Stage.ROLLOUT_GENERATE
        self._rows(segment, generate, turn.start_ns, asks, ["generation_started"])
        self._rows(segment, generate, turn.acted_ns, answers, ["generation_finished"])
        steps = [f"environment_stepped_steps={turn.ticks}"]
        self._rows(segment, Stage.ROLLOUT_TOOL, turn.end_ns, ("Environment", "Collector"), steps)

    def _finish(self, segment: _Segment) -> None:
        """Last events, the progress line and the turns of every traced environment."""
        end_ns = segment.turns[-1].end_ns
        inside = ("Collector", "Collector")
        self._rows(segment, Stage.ROLLOUT_FINISH, end_ns, inside, ["rollout_finished"])
        scores = np.sum([turn.reward for turn in segment.turns], axis=0).tolist()
        details = [f"reward_score_computed_score={score:.6g}" for score in scores]
        reward_path = ("Environment", "Collector")
        self._rows(segment, Stage.ROLLOUT_REWARD, end_ns, reward_path, details)
        uid = self._trace.uid(segment.number)
        terminated = np.any([turn.terminated for turn in segment.turns], axis=0)
        for place, env in enumerate(self._trace.traced_envs):
            status = "Terminated" if terminated[place] else "Finished"
            self._trace.emitter.task_completed(uid, env, round(scores[place], 6), status)
            self._trace.emitter.trajectory(self._record(segment, place, scores[place]))

    def _record(self, segment: _Segment, place: int, score: float) -> TrajectoryRecord:
        env = self._trace.traced_envs[place]
        return TrajectoryRecord(
            prompt_uid=self._trace.uid(segment.number),
            sample_index=env,
            request_id=str(segment.number),
            n_samples=len(self._envs),
            global_step=self._step(segment),
            created_at_ts=segment.opened_ns / NS_PER_S,
            completed_at_ts=segment.turns[-1].end_ns / NS_PER_S,
            turns=[self._turn_record(turn, place) for turn in segment.turns],
            initial_prompt_text=f"{self._task.name}, environment {env}, "
            f"policy version {segment.version}",
            reward_score=score,
        )

    def _turn_record(self, turn: _Turn, place: int) -> TurnRecord:
        ended = "terminated" if turn.terminated[place] else ""
        ended = ended or ("time limit" if turn.truncated[place] else "")
        reward = f"reward {turn.reward[place]:+.4g} in {turn.ticks} steps"
        return TurnRecord(
            prompt_token_count=self._task.obs_width,
            completion_text=f"action {_numbers(turn.actions[place])}",
            completion_token_count=turn.ticks,
            finish_reason="stop" if ended else "length",
            observation_text=f"{reward}; episode ended: {ended}" if ended else reward,
            start_ts=turn.start_ns / NS_PER_S,
            end_ts=turn.end_ns / NS_PER_S,
            completion_time_ms=turn.act_ns / NS_PER_MS,
            observation_time_ms=turn.env_ns / NS_PER_MS,
        )

    def _rows(
        self,
        segment: _Segment,
        stage: str,
        unix_ns: int,
        path: tuple[str, str],
        details: list[str],
        status: str = Status.RUNNING,
    ) -> None:
        self._trace.emitter.trajectory_events(
            self._trace.uid(segment.number),
            self._trace.traced_envs,
            stage,
            self._step(segment),
            source=path[0],
            target=path[1],
            details=details,
            status=status,
            unix_ms=unix_ns // NS_PER_MS,
        )

    def _step(self, segment: _Segment) -> int:
        return self._trace.rhythm.step_of(segment.version)


def _numbers(values: np.ndarray) -> str:
    shown = ", ".join(f"{value:+.3f}" for value in values[:MAX_SHOWN_ACTIONS].tolist())
    more = len(values) - MAX_SHOWN_ACTIONS
    return f"[{shown}, and {more} more]" if more > 0 else f"[{shown}]"
