"""RlTraceEmitter: what a framework calls to be observable. Standard library only.

```python
emitter = RlTraceEmitter.from_environment(job_id="job-1", style=LineStyle.COLOCATE)
emitter.total_steps(100)
emitter.step_header(1)
with emitter.stage("update actor"):
    ...
emitter.trajectory_event("p1", 0, Stage.ROLLOUT_FINISH, 1, source="Worker", target="Trainer")
emitter.close()
```

Without a root every call does nothing. No call raises on a failure of the disk or on values that
cannot be written, and none waits for the disk; `counters` says how many lines were lost.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TextIO

from unilab_core.telemetry.rl_trace import formats
from unilab_core.telemetry.rl_trace.formats import LineStyle, Stage, Status, TraceTarget
from unilab_core.telemetry.rl_trace.line_files import (
    MAX_LINE_BYTES,
    EchoStream,
    LineFile,
    LineFiles,
    Lines,
    Stamp,
    WriteCounters,
)
from unilab_core.telemetry.rl_trace.trajectory_record import TrajectoryRecord, trajectory_line


class RlTraceEmitter:
    """Writes progress, sample-flow and trajectory lines of one process.

    Args:
        target: where to write; None makes every call a no-op.
        job_id: first column of sample-flow rows.
        style: with or without the `disagg:` prefix.
        times_path: where exact times of progress lines go (`<run>/progress.tsidx`); None: nowhere.
        trace_every: one of how many environments is traced; recorded with the times.
        echo: stream for progress lines when the target asks for it; None: standard output.
    """

    def __init__(
        self,
        target: TraceTarget | None,
        *,
        job_id: str,
        style: LineStyle = LineStyle.DISAGG,
        times_path: Path | None = None,
        trace_every: int = 1,
        echo: TextIO | None = None,
    ) -> None:
        self.job_id = job_id.replace(",", "_")
        self.style = style
        self._target = target
        self._echo = EchoStream(echo)
        self._trace_every = max(int(trace_every), 1)
        self._files = LineFiles()
        self._echoes = LineFiles()
        if target is None:
            return
        root = target.root
        self._times = None if times_path is None else LineFile(lambda _: times_path)
        self._progress = LineFile(
            lambda unix_s: root / formats.PROGRESS_DIR / formats.progress_file_name(unix_s),
            after_write=None if times_path is None else self._stamp,
        )
        self._open_process_files(root)
        if self._times is not None:
            self._put(self._times, f"# trace_every={self._trace_every}", time.time())

    @classmethod
    def from_environment(
        cls, *, job_id: str, style: LineStyle = LineStyle.DISAGG, run_dir: Path | None = None
    ) -> Self:
        """An emitter that writes only if `VERL_TRACE_DIR` is set."""
        times = None if run_dir is None else run_dir / formats.PROGRESS_TIMES_FILE
        target = formats.trace_target(False, run_dir)
        return cls(target, job_id=job_id, style=style, times_path=times)

    @property
    def enabled(self) -> bool:
        """Whether anything is written."""
        return self._target is not None

    @property
    def counters(self) -> WriteCounters:
        """Lines written to the files and lost; lines that were only printed do not count."""
        return self._files.counters

    def traces_env(self, env_index: int) -> bool:
        """Whether this environment is among the traced ones (every `trace_every`-th)."""
        return self._target is not None and env_index % self._trace_every == 0

    # Progress

    def total_steps(self, total_steps: int) -> None:
        """Number of training steps of the run."""
        self._progress_line(formats.total_steps_line(total_steps))

    def step_header(
        self, step: int, *, epoch: int | None = None, batches: int | None = None
    ) -> None:
        """A step begins."""
        self._progress_line(formats.step_header_line(step, epoch, batches))

    def rollout_window(self, step: int, edge: str) -> None:
        """The rollout of `step` has `started` or `finished`."""
        self._progress_line(formats.window_line(step, "rollout", edge))

    def train_window(self, step: int, edge: str) -> None:
        """The training of `step` has `started` or `finished`."""
        self._progress_line(formats.window_line(step, "train", edge))

    def stage_edge(self, edge: str, stage: str) -> None:
        """A stage of the current step `start`s or `end`s."""
        self._progress_line(formats.stage_line(self.style, edge, stage))

    @contextmanager
    def stage(self, stage: str) -> Iterator[None]:
        """A stage of the current step; its end line is missing if the body raises."""
        self.stage_edge("start", stage)
        yield
        self.stage_edge("end", stage)

    def batch_load(self, outcome: str, step: int, chunk: int = 0, last_chunk: int = 0) -> None:
        """The trainer will `try to` load, or has `successfully` loaded, a batch."""
        self._progress_line(formats.batch_load_line(outcome, step, chunk, last_chunk))

    def task_completed(
        self, uid: str, index: int, score: float | None, status: str = "Finished"
    ) -> None:
        """A trajectory is finished."""
        self._progress_line(formats.task_line(uid, index, score, status))

    def throughput(self, tokens_per_s: float) -> None:
        """Generation throughput; the `disagg:` style has no such line."""
        if self.style is LineStyle.COLOCATE:
            self._progress_line(formats.throughput_line(tokens_per_s))

    # Sample flow

    def trajectory_event(
        self,
        uid: str,
        index: int,
        stage: str,
        global_step: int,
        *,
        source: str,
        target: str,
        detail: str = "",
        status: str = Status.RUNNING,
        unix_ms: int | None = None,
    ) -> None:
        """An event of one trajectory."""
        self._row(f"{uid}/{index}", status, unix_ms, source, target, stage, global_step, detail)

    def trajectory_events(
        self,
        uid: str,
        indices: Sequence[int],
        stage: str,
        global_step: int,
        *,
        source: str,
        target: str,
        details: Sequence[str],
        status: str = Status.RUNNING,
        unix_ms: int | None = None,
    ) -> None:
        """The same event of several trajectories of one prompt; one detail each, or one for all."""
        if self._target is None or not indices:
            return
        self._after_fork(self._target.root)
        now_ms = time.time_ns() // 1_000_000
        rows = [
            formats.sample_row(
                self.job_id,
                f"{uid}/{index}".replace(",", "_"),
                status,
                now_ms if unix_ms is None else unix_ms,
                source=source,
                target=target,
                stage=stage,
                global_step=global_step,
                detail=details[at % len(details)],
            )
            for at, index in enumerate(indices)
        ]
        self._put(self._samples, "\n".join(rows), now_ms / 1000.0)

    def prompt_event(
        self,
        uid: str,
        stage: str,
        global_step: int,
        *,
        source: str,
        target: str,
        detail: str,
        unix_ms: int | None = None,
    ) -> None:
        """An event of all trajectories of one prompt."""
        sample_id = f"{uid}/{formats.WHOLE_PROMPT}"
        self._row(sample_id, "RUNNING", unix_ms, source, target, stage, global_step, detail)

    def global_event(
        self,
        stage: str,
        global_step: int,
        *,
        source: str,
        target: str,
        detail: str,
        unix_ms: int | None = None,
    ) -> None:
        """An event of everything in flight, such as a weight synchronisation."""
        sample_id = f"{formats.EVERYTHING}/{formats.WHOLE_PROMPT}"
        self._row(sample_id, "RUNNING", unix_ms, source, target, stage, global_step, detail)

    def weights_synced(self, global_step: int, *, source: str, target: str) -> None:
        """New weights are in use."""
        self.global_event(
            Stage.SYNC_PARAMS,
            global_step,
            source=source,
            target=target,
            detail=f"weights_synced_global_step={global_step}",
        )

    # Trajectories

    def trajectory(self, record: TrajectoryRecord) -> None:
        """A finished trajectory with its turns."""
        if self._target is None:
            return
        self._after_fork(self._target.root)
        try:
            line = trajectory_line(record)
        except (TypeError, ValueError, RecursionError, AttributeError):
            self.counters.dropped_error += 1
            return
        self._put(self._trajectories, line, time.time())

    def flush(self, timeout_s: float = 2.0) -> bool:
        """Wait for the disk for at most `timeout_s`; for tests and the end of a run."""
        done = self._files.flush(timeout_s)
        return self._echoes.flush(timeout_s) and done

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what is queued for at most `timeout_s`, then stop."""
        self._files.close(timeout_s)
        self._echoes.close(timeout_s)

    # Private

    def _open_process_files(self, root: Path) -> None:
        pid = os.getpid()
        self._pid = pid
        sample = root / formats.SAMPLE_DIR / formats.sample_file_name(socket.gethostname(), pid)
        self._samples = LineFile(lambda _: sample)
        # Names hold no host: exclusive creation keeps two hosts with one pid apart.
        self._trajectories = LineFile(
            lambda _: (
                root
                / formats.TRAJECTORY_DIR
                / formats.trajectory_file_name(pid, time.time_ns() // 1_000_000)
            ),
            exclusive=True,
        )

    def _after_fork(self, root: Path) -> None:
        if self._pid != os.getpid():
            self._open_process_files(root)

    def _row(
        self,
        sample_id: str,
        status: str,
        unix_ms: int | None,
        source: str,
        target: str,
        stage: str,
        global_step: int,
        detail: str,
    ) -> None:
        if self._target is None:
            return
        self._after_fork(self._target.root)
        now_ms = time.time_ns() // 1_000_000
        row = formats.sample_row(
            self.job_id,
            sample_id.replace(",", "_"),
            status,
            now_ms if unix_ms is None else unix_ms,
            source=source,
            target=target,
            stage=stage,
            global_step=global_step,
            detail=detail,
        )
        self._put(self._samples, row, now_ms / 1000.0)

    def _progress_line(self, line: str) -> None:
        if self._target is None:
            return
        line = formats.one_line(line)
        self._put(self._progress, line, time.time())
        if self._target.echo_progress:
            self._echoes.put(self._echo, line.encode("utf-8", "replace") + b"\n", time.time())

    def _put(self, file: LineFile | EchoStream, line: str, unix_s: float) -> None:
        data = line.encode("utf-8", "replace") + b"\n"
        if len(data) > MAX_LINE_BYTES:
            self.counters.dropped_full += 1
            return
        self._files.put(file, data, unix_s)

    def _stamp(self, path: Path, stamps: list[Stamp]) -> None:
        # Runs in the writing thread, right after the lines themselves.
        if self._times is not None and stamps:
            text = "".join(f"{path.name},{at},{int(unix_s * 1000)}\n" for at, unix_s in stamps)
            self._times.write([Lines(text.encode(), stamps[0][1])])
