"""What a job of ours calls a step and a trajectory in its RL trace, and who may write it.

    training.rl_trace=true    <run>/rl_trace
    VERL_TRACE_DIR            that directory; progress lines are printed as well
    neither                   nothing is written

A **trajectory** is what one traced environment does during a fixed number of vector steps: a
rollout of PPO and APPO, `OFF_POLICY_SEGMENT_TICKS` of the others. All traced environments of the
same steps share a prompt, so both processes can name a trajectory without talking to each other:

    <run id>.<rank>-<n>/<environment>       n counts rollouts (or segments) from 0

A **step** is one iteration of PPO and APPO, and as many iterations of the others as a segment has:
their iterations are too many and too short to be worth a dozen lines each.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from unilab_core.config.config import Config
from unilab_core.config.on_policy import AppoConfig, PpoConfig
from unilab_core.config.strict import to_plain
from unilab_core.telemetry.rl_trace.emitter import RlTraceEmitter
from unilab_core.telemetry.rl_trace.formats import (
    PROGRESS_TIMES_FILE,
    LineStyle,
    TraceTarget,
    trace_target,
)
from unilab_ipc.errors import RecordInvalid
from unilab_ipc.registry import JobFolder

if TYPE_CHECKING:
    from unilab_core.run.child import ChildContext

OFF_POLICY_SEGMENT_TICKS = 64
ECHO_VARIABLE = "UNILAB_TRACE_ECHO_FD"
"""Descriptor that a child inherits for its progress lines where no panel draws."""
COUNTS_PREFIX = "rl_trace-"
CLOSE_S = 1.0
"""A disk that hangs costs the end of a run this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRhythm:
    """How iterations and vector steps are cut into steps and trajectories."""

    style: LineStyle
    segment_ticks: int
    """Vector steps of a trajectory."""
    iterations_per_step: int
    max_iterations: int

    @property
    def total_steps(self) -> int:
        """Steps of the whole run."""
        return -(-self.max_iterations // self.iterations_per_step)

    def step_of(self, iteration: int) -> int:
        """Step, from 1, of the iteration that follows `iteration` finished ones."""
        return iteration // self.iterations_per_step + 1

    def closes_step(self, iteration: int) -> bool:
        """Whether the last finished iteration was the last of its step."""
        return iteration % self.iterations_per_step == 0 or iteration >= self.max_iterations


@dataclass(slots=True)
class JobTrace:
    """One process's share of the trace of a job."""

    emitter: RlTraceEmitter
    rhythm: TraceRhythm
    prefix: str
    """Run id and rank: no other run writes the same names."""
    traced_envs: tuple[int, ...]
    """Every k-th environment; empty when nothing is written."""
    record_counts: RecordCounts | None = None

    @property
    def enabled(self) -> bool:
        """Whether anything is written."""
        return self.emitter.enabled

    def uid(self, number: int) -> str:
        """Prompt of the n-th rollout or segment of this process pair."""
        return f"{self.prefix}-{number}"

    def note_losses(self) -> None:
        """Let monitors know that lines were lost; costs nothing while none are."""
        if self.record_counts is not None:
            self.record_counts.changed(self.emitter)

    def close(self) -> None:
        """Write what is queued, for a bounded time, and leave the counts."""
        if self.enabled:
            self.emitter.close(CLOSE_S)
        if self.record_counts is not None:
            self.record_counts.write(self.emitter)


class RecordCounts:
    """Counts of one process in the job folder, where monitors and the launcher find them."""

    def __init__(self, folder: JobFolder, role: str, rank: int) -> None:
        self._folder = folder
        self._name = f"{COUNTS_PREFIX}{role}-{rank}.json"
        self._dropped = 0

    def changed(self, emitter: RlTraceEmitter) -> None:
        """Write the counts if losses have doubled: so a bad disk costs little."""
        dropped = emitter.counters.dropped
        if dropped > 2 * self._dropped:
            self.write(emitter)

    def write(self, emitter: RlTraceEmitter) -> None:
        """Write them now; a registry that cannot be written is no reason to fail."""
        self._dropped = emitter.counters.dropped
        with contextlib.suppress(OSError):
            self._folder.write_json(
                self._name, {**asdict(emitter.counters), "dropped": self._dropped}
            )


def trace_counts(folder: JobFolder, ranks: int = 1) -> dict[str, dict[str, int]]:
    """Lines written and lost so far, by process; only of processes that have lost any or ended."""
    found: dict[str, dict[str, int]] = {}
    for role in ("collector", "learner"):
        for rank in range(ranks):
            try:
                record = folder.read_json(f"{COUNTS_PREFIX}{role}-{rank}.json")
            except (RecordInvalid, OSError):
                continue
            if record is not None:
                found[f"{role}-{rank}"] = record
    return found


def target_of(config: Config, run_dir: Path, environ: Mapping[str, str]) -> TraceTarget | None:
    """Where this job's trace goes; None: nowhere."""
    return trace_target(config.training.rl_trace, run_dir, environ)


def rhythm_of(config: Config) -> TraceRhythm:
    """Steps and trajectories of the configured algorithm."""
    algo, training = config.algo, config.training
    if isinstance(algo, PpoConfig):
        return TraceRhythm(
            style=LineStyle.COLOCATE,
            segment_ticks=algo.num_steps_per_env,
            iterations_per_step=1,
            max_iterations=algo.max_iterations,
        )
    if isinstance(algo, AppoConfig):
        return TraceRhythm(
            style=LineStyle.DISAGG,
            segment_ticks=algo.steps_per_env,
            iterations_per_step=1,
            max_iterations=algo.max_iterations,
        )
    # A segment must fit into the replay, with room to be drawn as a whole. The key is read by name
    # because every off-policy section has one, whatever its class.
    kept_ticks = int(to_plain(algo).get("replay_buffer_n", 4 * OFF_POLICY_SEGMENT_TICKS))
    ticks = max(min(OFF_POLICY_SEGMENT_TICKS, kept_ticks // 4), 1)
    return TraceRhythm(
        style=LineStyle.DISAGG,
        segment_ticks=ticks,
        iterations_per_step=max(ticks // training.env_steps_per_sync, 1),
        max_iterations=algo.max_iterations,
    )


def open_child_trace(ctx: ChildContext, stack: contextlib.ExitStack) -> JobTrace:
    """A role's share of the RL trace; closed before the process ends."""
    trace = open_trace(
        ctx.config,
        folder=ctx.folder,
        run_id=ctx.launch["run_id"],
        run_dir=ctx.run.run_dir,
        role=ctx.role,
        rank=ctx.rank,
    )
    stack.callback(trace.close)
    return trace


def open_trace(
    config: Config,
    *,
    folder: JobFolder,
    run_id: str,
    run_dir: Path,
    role: str,
    rank: int = 0,
    environ: Mapping[str, str] | None = None,
) -> JobTrace:
    """The trace of one process; without a target every call on it is a no-op.

    The launcher prints its own lines: its terminal may belong to the panel.
    """
    environ = os.environ if environ is None else environ
    target = target_of(config, run_dir, environ)
    if target is not None and role == "launcher":
        target = replace(target, echo_progress=False)
    every = config.training.rl_trace_every
    rhythm = rhythm_of(config)
    emitter = RlTraceEmitter(
        target,
        job_id=folder.job,
        style=rhythm.style,
        times_path=run_dir / PROGRESS_TIMES_FILE,
        trace_every=every,
        echo=_echo_stream(environ),
    )
    envs = range(0, config.algo.num_envs, every) if target is not None else range(0)
    return JobTrace(
        emitter=emitter,
        rhythm=rhythm,
        prefix=f"{run_id}.{rank}",
        traced_envs=tuple(envs),
        # The launcher's last lines come after the folder is released.
        record_counts=None
        if target is None or role == "launcher"
        else RecordCounts(folder, role, rank),
    )


def silent_trace(segment_ticks: int = OFF_POLICY_SEGMENT_TICKS) -> JobTrace:
    """A trace that goes nowhere, for a loop outside of a job."""
    rhythm = TraceRhythm(
        style=LineStyle.DISAGG,
        segment_ticks=segment_ticks,
        iterations_per_step=1,
        max_iterations=1,
    )
    emitter = RlTraceEmitter(None, job_id="none")
    return JobTrace(emitter=emitter, rhythm=rhythm, prefix="none", traced_envs=())


def trace_facts(config: Config, run_dir: Path, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """What the records of a job say about its trace; None when there is none."""
    target = target_of(config, run_dir, environ)
    if target is None:
        return None
    return {
        "root": os.path.abspath(target.root),
        "every": config.training.rl_trace_every,
        "times": str(run_dir / PROGRESS_TIMES_FILE),
    }


def _echo_stream(environ: Mapping[str, str]) -> TextIO | None:
    """The launcher's standard output where it was handed down; else None: the own one."""
    number = environ.get(ECHO_VARIABLE, "")
    if not number.isdigit():
        return None
    try:
        return os.fdopen(int(number), "w", encoding="utf-8", errors="replace")
    except OSError:
        return None
