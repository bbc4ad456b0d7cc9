"""A generated run that goes on in real time: what a monitor has to follow.

Trajectories begin evenly over time; each row, progress line and trajectory line is written when its
time has come, so that a few hundred trajectories are in flight as in a real run.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from pathlib import Path

from unilab_core.telemetry.rl_trace import formats
from unilab_core.telemetry.rl_trace.demo_trace import (
    EVENTS_PER_TRAJECTORY,
    TRAIN_EVENTS,
    event_rows,
    prompt_row,
    random_times,
    sync_row,
    trajectory_text,
    two_rounds,
)

JOB_ID = "demo-job"
PROMPT_SIZE = 4
ROWS_PER_PROMPT = PROMPT_SIZE * EVENTS_PER_TRAJECTORY + 1
_STAGES = (
    ("compute reward", 0.30, 0.33),
    ("compute log prob", 0.43, 0.46),
    ("compute adv", 0.46, 0.47),
    ("update actor", 0.48, 0.90),
    ("sync params", 0.96, 0.98),
)
"""(stage, start, end) as shares of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """How a run goes on."""

    rows_per_s: float
    """Sample-flow rows per second."""
    first_step: int
    """Number of the first step that is written."""
    step_s: float = 10.0
    num_shards: int = 8
    seed: int = 1


class LiveRun:
    """Appends to a trace directory whatever is due; one writer per directory."""

    def __init__(self, root: Path, settings: LiveSettings, start_ms: int) -> None:
        for folder in (formats.PROGRESS_DIR, formats.SAMPLE_DIR, formats.TRAJECTORY_DIR):
            (root / folder).mkdir(parents=True, exist_ok=True)
        self.num_rows = 0
        """Sample-flow rows written so far."""
        self.newest = ""
        """The trajectory that began last."""
        self.finished = ""
        """The trajectory whose line was written last."""
        self._root = root
        self._settings = settings
        self._rng = random.Random(settings.seed)
        self._start_ms = start_ms
        self._due: list[tuple[float, int, str, str]] = []
        self._order = 0
        self._num_prompts = 0
        self._num_steps = 0
        names = [formats.sample_file_name("live", 9000 + i) for i in range(settings.num_shards)]
        self._shards = [root / formats.SAMPLE_DIR / name for name in names]
        self._texts = root / formats.TRAJECTORY_DIR / formats.trajectory_file_name(9000, start_ms)

    def write(self, now_ms: float) -> None:
        """Append everything whose time has come."""
        self._begin(now_ms)
        by_file: dict[Path, list[str]] = {}
        stamps: list[str] = []
        while self._due and self._due[0][0] <= now_ms:
            unix_ms, _, kind, text = heapq.heappop(self._due)
            if kind == "progress":
                stamps.append(self._progress(unix_ms, text))
            elif kind == "trajectory":
                self.finished, _, text = text.partition("\t")
                by_file.setdefault(self._texts, []).append(text)
            else:
                self.num_rows += 1
                by_file.setdefault(self._shards[int(kind)], []).append(text)
        for path, texts in by_file.items():
            with path.open("a", encoding="utf-8") as stream:
                stream.write("".join(texts))
        if stamps:
            times = self._root.parent / formats.PROGRESS_TIMES_FILE
            with times.open("a", encoding="ascii") as stream:
                stream.write("".join(stamps))

    def _begin(self, now_ms: float) -> None:
        """Plan the prompts and steps that have begun by now."""
        settings = self._settings
        step_ms = settings.step_s * 1000.0
        while self._start_ms + self._num_steps * step_ms <= now_ms:
            self._plan_step(self._start_ms + self._num_steps * step_ms)
            self._num_steps += 1
        prompt_ms = 1000.0 * ROWS_PER_PROMPT / settings.rows_per_s
        while self._start_ms + self._num_prompts * prompt_ms <= now_ms:
            self._plan_prompt(int(self._start_ms + self._num_prompts * prompt_ms))
            self._num_prompts += 1

    def _plan_prompt(self, at_ms: int) -> None:
        rng, step = self._rng, self._step_at(at_ms)
        uid = f"live-{self._num_prompts:06x}"
        shard = str(rng.randrange(len(self._shards)))
        self._plan(at_ms, shard, prompt_row(JOB_ID, uid, at_ms, step))
        for index in range(PROMPT_SIZE):
            times = random_times(rng, at_ms)
            events = (*two_rounds(rng), *TRAIN_EVENTS)
            rows = event_rows(JOB_ID, f"{uid}/{index}", events, times, step)
            for unix_ms, row in zip(times, rows, strict=False):
                self._plan(unix_ms, shard, row)
            score = round(rng.random(), 3)
            self._plan(times[7], "progress", formats.task_line(uid, index, score, "Finished"))
            text = trajectory_text(rng, uid, index, step, times)
            self._plan(times[7], "trajectory", f"{uid}/{index}\t{text}")
        self.newest = f"{uid}/0"

    def _plan_step(self, at_ms: float) -> None:
        step, size_ms = self._settings.first_step + self._num_steps, self._settings.step_s * 1000.0
        lines = [
            (0.0, formats.step_header_line(step)),
            (0.0, formats.window_line(step, "rollout", "started")),
            (0.0, formats.batch_load_line("try to", step, 0, 0)),
            (0.29, formats.batch_load_line("successfully", step, 0, 0)),
            (0.295, formats.window_line(step, "rollout", "finished")),
            (0.475, formats.window_line(step, "train", "started")),
            (0.91, formats.window_line(step, "train", "finished")),
        ]
        for stage, start, end in _STAGES:
            lines.append((start, formats.stage_line(formats.LineStyle.DISAGG, "start", stage)))
            lines.append((end, formats.stage_line(formats.LineStyle.DISAGG, "end", stage)))
        for share, line in lines:
            self._plan(at_ms + share * size_ms, "progress", line)
        synced_ms = int(at_ms + 0.98 * size_ms)
        self._plan(synced_ms, "0", sync_row(JOB_ID, synced_ms, step))

    def _progress(self, unix_ms: float, line: str) -> str:
        """Write a progress line; its time stamp."""
        name = formats.progress_file_name(unix_ms / 1000.0)
        with (self._root / formats.PROGRESS_DIR / name).open("a", encoding="utf-8") as stream:
            offset = stream.tell()
            stream.write(f"{line}\n")
        return f"{name},{offset},{int(unix_ms)}\n"

    def _step_at(self, unix_ms: float) -> int:
        num_over = int((unix_ms - self._start_ms) // (1000.0 * self._settings.step_s))
        return self._settings.first_step + num_over

    def _plan(self, unix_ms: float, kind: str, text: str) -> None:
        heapq.heappush(self._due, (unix_ms, self._order, kind, text))
        self._order += 1
