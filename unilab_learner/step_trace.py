"""The learner's share of the RL trace: steps, their stages, and what became of each trajectory.

    begin -> [batch asked] -> batch ready -> update -> updated -> sync -> metrics, checkpoint

The loops call these at the moments they are named after. Whether several iterations make a step,
and what a trajectory is, `unilab_core.run.job_trace` says. Without a trace every method returns at
its first line.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor

from unilab_core.run.job_trace import JobTrace, silent_trace
from unilab_core.telemetry.rl_trace.formats import LineStyle, Stage, Status
from unilab_learner.replay.drawn_segments import DrawnSegments

SOURCE = "Learner"
GENERATION = "generation"
ADVANTAGE = "compute adv"
UPDATE = "update actor"
SYNC = "sync params"
CHECKPOINT = "save checkpoint"
METRICS = "record metrics"
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class StepTrace:
    """Writes the steps of one learner."""

    def __init__(self, trace: JobTrace) -> None:
        self._trace = trace
        self._out = trace.emitter
        self._on = trace.enabled
        self._colocated = trace.rhythm.style is LineStyle.COLOCATE
        self._step = 0
        self._in_rollout = False
        self._begun_ns = 0
        self._batch: list[tuple[int, Sequence[int]]] = []
        """Trajectories in the coming update that no update has had before."""

    @classmethod
    def silent(cls) -> Self:
        """A trace that goes nowhere."""
        return cls(silent_trace())

    # Steps and stages

    def begin(self, iteration: int) -> None:
        """The next iteration begins, `iteration` being finished."""
        if not self._on or self._in_rollout:
            return
        step = self._trace.rhythm.step_of(iteration)
        if step == self._step:
            return
        self._step = step
        self._in_rollout = True
        self._begun_ns = time.monotonic_ns()
        self._out.step_header(step)
        self._out.rollout_window(step, "started")
        if self._colocated:
            self._out.stage_edge("start", GENERATION)
        else:
            self._out.batch_load("try to", step)

    def batch_ready(self, env_steps: int = 0) -> None:
        """Everything the update needs is there; the first one of a step opens its training.

        Args:
            env_steps: collected since `begin`, where the collector waits for the update.
        """
        if not self._in_rollout:
            return
        self._in_rollout = False
        step = self._step
        if self._colocated:
            self._out.stage_edge("end", GENERATION)
        else:
            self._out.batch_load("successfully", step)
        self._out.rollout_window(step, "finished")
        if self._colocated:
            spent_s = (time.monotonic_ns() - self._begun_ns) / NS_PER_S
            self._out.throughput(env_steps / spent_s if spent_s > 0.0 else 0.0)
        self._out.train_window(step, "started")

    @contextmanager
    def advantages(self) -> Iterator[None]:
        """Around the computation of returns and advantages."""
        if not self._on:
            yield
            return
        with self._out.stage(ADVANTAGE):
            yield
        self._events(Stage.TRAIN_ADVANTAGE, "advantage_computed")

    @contextmanager
    def update(self) -> Iterator[None]:
        """Around the optimiser steps of one iteration."""
        if not self._on:
            yield
            return
        with self._out.stage(UPDATE):
            yield

    def updated(self, iteration: int) -> None:
        """The update that makes `iteration` finished ones is done: its trajectories are trained."""
        if not self._on:
            return
        self._events(Stage.TRAIN_UPDATE, "actor_parameters_updated", Status.COMPLETE)
        self._batch.clear()
        if self._trace.rhythm.closes_step(iteration):
            self._out.train_window(self._step, "finished")

    @contextmanager
    def sync(self, iteration: int) -> Iterator[None]:
        """Around the hand-over of the weights after `iteration` finished ones."""
        if not self._on or not self._trace.rhythm.closes_step(iteration):
            yield
            return
        with self._out.stage(SYNC):
            yield
        self.weights_in_use()

    def weights_in_use(self) -> None:
        """From here on everybody acts with the weights of this step."""
        if self._on:
            self._out.weights_synced(self._step, source=SOURCE, target="Policy")

    @contextmanager
    def metrics(self, iteration: int) -> Iterator[None]:
        """Around the report of an iteration."""
        if not self._on or not self._trace.rhythm.closes_step(iteration):
            yield
            return
        with self._out.stage(METRICS):
            yield
        self._trace.note_losses()

    @contextmanager
    def checkpoint(self) -> Iterator[None]:
        """Around a checkpoint."""
        if not self._on:
            yield
            return
        with self._out.stage(CHECKPOINT):
            yield
        self._out.global_event(
            Stage.CHECKPOINT,
            self._step,
            source=SOURCE,
            target="Disk",
            detail="checkpoint_saved",
        )

    # Trajectories

    def rollout_taken(self, number: int, *, kept: bool = True) -> None:
        """A whole rollout has arrived; not kept: too old to be learned from."""
        if not self._on:
            return
        envs = self._trace.traced_envs
        if kept:
            self._batch.append((number, envs))
            self._rows(number, envs, Stage.BUFFER_SAMPLE, "sampled_from_replay_buffer")
        else:
            self._rows(number, envs, Stage.BUFFER_SAMPLE, "dropped_too_old", Status.DISCARDED)

    def drawn(self, segments: Sequence[tuple[int, Sequence[int]]], unix_ns: int) -> None:
        """Segments that came up in a batch for the first time, at a time that is past."""
        self._batch.extend(segments)
        for number, envs in segments:
            self._rows(
                number,
                envs,
                Stage.BUFFER_SAMPLE,
                "sampled_from_replay_buffer",
                unix_ms=unix_ns // NS_PER_MS,
            )

    def lost(self, segments: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Segments that were overwritten before anybody drew them."""
        for number, envs in segments:
            self._rows(number, envs, Stage.BUFFER_SAMPLE, "overwritten", Status.DISCARDED)

    def _events(self, stage: str, detail: str, status: str = Status.RUNNING) -> None:
        for number, envs in self._batch:
            self._rows(number, envs, stage, detail, status)

    def _rows(
        self,
        number: int,
        envs: Sequence[int],
        stage: str,
        detail: str,
        status: str = Status.RUNNING,
        unix_ms: int | None = None,
    ) -> None:
        self._out.trajectory_events(
            self._trace.uid(number),
            envs,
            stage,
            self._step,
            source="ReplayBuffer" if stage == Stage.BUFFER_SAMPLE else SOURCE,
            target=SOURCE,
            details=[detail],
            status=status,
            unix_ms=unix_ms,
        )


class ReplayTrace:
    """Follows traced segments through a replay: drawn, trained, or overwritten.

    The drawn rows lie on the learner's device. They are looked at after the update, whose figures
    have been waited for by then, so that looking costs no wait of its own.
    """

    def __init__(self, trace: JobTrace, steps: StepTrace, *, replay_ticks: int) -> None:
        envs = trace.traced_envs
        self._on = trace.enabled and bool(envs)
        self._steps = steps
        self._stride = envs[1] if len(envs) > 1 else 0
        self._drawn_ns = 0
        if self._on:
            self._segments = DrawnSegments(
                ticks_per_segment=trace.rhythm.segment_ticks,
                replay_ticks=replay_ticks,
                traced_envs=envs,
            )

    @classmethod
    def silent(cls) -> Self:
        """A trace that goes nowhere."""
        return cls(silent_trace(), StepTrace.silent(), replay_ticks=0)

    def gathered(self) -> None:
        """The rows of the coming update have just been drawn."""
        if self._on:
            self._drawn_ns = time.time_ns()

    def looked_at(self, rows: tuple[Tensor, Tensor] | None, ticks_written: int) -> None:
        """Which segments came up; (tick[N], env[N]) of the last draw, once nothing is pending."""
        if not self._on or rows is None:
            return
        tick, env = rows
        traced = (env % self._stride == 0) if self._stride else (env == 0)
        both = torch.stack([tick[traced], env[traced]]).cpu().numpy()
        self._steps.drawn(self._segments.draw(both[0], both[1], ticks_written), self._drawn_ns)
        self._steps.lost(self._segments.expire(ticks_written))
