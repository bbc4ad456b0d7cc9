"""The names and wordings of the three file kinds. Standard library only.

```
<root>/progress/<YYYYMMDD-HH>.log                        one control-flow event per line
<root>/sample/<hostname>-pid<pid>.csv                    job_id,cat,sample_id,sample_status,
                                                         timestamp (Unix ms),content
<root>/trajectory/trajectory_<pid>_<timestamp>.jsonl     one finished trajectory per line
```

Ids of a sample-flow row say what the row is about: `<uid>/<n>` one trajectory (class A),
`<uid>/sample` all trajectories of a prompt (class B), `*/sample` everything (class C).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ENV_ROOT = "VERL_TRACE_DIR"

PROGRESS_DIR = "progress"
SAMPLE_DIR = "sample"
TRAJECTORY_DIR = "trajectory"

# Beside the trace root, not in it: exact times of progress lines as `file,offset,unix_ms`.
PROGRESS_TIMES_FILE = "progress.tsidx"

CAT_SAMPLE = "sample"
EVERYTHING = "*"
WHOLE_PROMPT = "sample"
STEP_RULE = "=" * 20


class Status(StrEnum):
    """The status column; the last three are this project's addition to the format."""

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    DISCARDED = "DISCARDED"
    CANCELLED = "CANCELLED"


class Stage(StrEnum):
    """Stage names of sample-flow rows. Readers accept any other name as well."""

    DATA_PREPROCESS = "DATA_PREPROCESS"
    ROLLOUT_DISPATCH = "ROLLOUT_DISPATCH"
    ROLLOUT_START = "ROLLOUT_START"
    ROLLOUT_ENV = "ROLLOUT_ENV"
    ROLLOUT_GENERATE = "ROLLOUT_GENERATE"
    ROLLOUT_TOOL = "ROLLOUT_TOOL"
    ROLLOUT_FINISH = "ROLLOUT_FINISH"
    ROLLOUT_REWARD = "ROLLOUT_REWARD"
    BUFFER_SAMPLE = "BUFFER_SAMPLE"
    TRAIN_LOGPROB = "TRAIN_LOGPROB"
    TRAIN_REF_LOGPROB = "TRAIN_REF_LOGPROB"
    TRAIN_VALUES = "TRAIN_VALUES"
    TRAIN_ADVANTAGE = "TRAIN_ADVANTAGE"
    TRAIN_UPDATE = "TRAIN_UPDATE"
    SYNC_PARAMS = "SYNC_PARAMS"
    EVAL = "EVAL"
    CHECKPOINT = "CHECKPOINT"


# Stages of progress lines, in the order of the source document.
PROGRESS_STAGES = (
    "generation",
    "compute reward",
    "compute log prob",
    "compute ref log prob",
    "compute values",
    "compute adv",
    "update actor",
    "save checkpoint",
    "eval",
    "record metrics",
    "sync params",
)
OPTIONAL_STAGES = frozenset(
    {"compute reward", "compute ref log prob", "compute values", "save checkpoint", "eval"}
)


class LineStyle(StrEnum):
    """How stage lines are written: with or without the `disagg:` prefix."""

    DISAGG = "disagg"
    COLOCATE = "colocate"


@dataclass(frozen=True, slots=True)
class TraceTarget:
    """Where a process writes its trace."""

    root: Path
    """The directory that holds the three folders."""
    echo_progress: bool
    """Whether progress lines also go to standard output (the panel's role log)."""


def trace_target(
    enabled: bool, run_dir: Path | None, environ: Mapping[str, str] | None = None
) -> TraceTarget | None:
    """The trace root: `VERL_TRACE_DIR` if set, else `<run>/rl_trace` if enabled, else None."""
    from_environment = (os.environ if environ is None else environ).get(ENV_ROOT, "")
    if from_environment:
        return TraceTarget(Path(from_environment), echo_progress=True)
    if enabled and run_dir is not None:
        return TraceTarget(run_dir / "rl_trace", echo_progress=False)
    return None


def progress_file_name(unix_s: float) -> str:
    """File of the local hour in which a progress line is written."""
    return time.strftime("%Y%m%d-%H.log", time.localtime(unix_s))


def sample_file_name(hostname: str, pid: int) -> str:
    """Sample-flow file of one process."""
    return f"{hostname}-pid{pid}.csv"


def trajectory_file_name(pid: int, unix_ms: int) -> str:
    """Trajectory file of one process, opened at `unix_ms`."""
    return f"trajectory_{pid}_{unix_ms}.jsonl"


def sample_row(
    job_id: str,
    sample_id: str,
    status: str,
    unix_ms: int,
    *,
    source: str,
    target: str,
    stage: str,
    global_step: int,
    detail: str,
) -> str:
    r"""One sample-flow row without its line end; line breaks inside fields become `\n`."""
    content = f"from={source}|to={target}|stage={stage}|global_step={global_step}|detail={detail}"
    row = f"{job_id},{CAT_SAMPLE},{sample_id},{status},{unix_ms},{content}"
    if "\n" in row or "\r" in row or "\0" in row:
        row = one_line(row)
    return row


def one_line(text: str) -> str:
    r"""Line breaks as the two characters `\n`; NUL bytes removed."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\\n")
    return text.replace("\0", "")


def total_steps_line(total_steps: int) -> str:
    """The number of training steps of the whole run."""
    return f"Total training steps: {total_steps}"


def step_header_line(step: int, epoch: int | None = None, batches: int | None = None) -> str:
    """Head of a step; the colocated style may add the epoch and the consumed batches."""
    extra = "" if epoch is None else f" Epoch {epoch}"
    extra += "" if batches is None else f" Batch {batches}"
    return f"{STEP_RULE} Step {step}{extra} {STEP_RULE}"


def window_line(step: int, window: str, edge: str) -> str:
    """Edge (`started`, `finished`) of a step's `rollout` or `train` window."""
    return f"Step {step} {window} {edge}"


def stage_line(style: LineStyle, edge: str, stage: str) -> str:
    """Edge (`start`, `end`) of a stage of the current step."""
    return f"disagg: {edge} {stage}" if style is LineStyle.DISAGG else f"{edge} {stage}"


def batch_load_line(outcome: str, step: int, chunk: int, last_chunk: int) -> str:
    """A batch load; `outcome` is `try to` or `successfully`."""
    where = f"global batch@{step}, chunk[{chunk}/{last_chunk}] from replay_queue"
    return f"Trainer: {outcome} load {where}"


def task_line(uid: str, index: int, score: float | None, status: str) -> str:
    """A finished trajectory."""
    return f"Task {uid}/{index} is completed, score={score} status={status}"


def throughput_line(tokens_per_s: float) -> str:
    """Generation throughput, colocated style only."""
    return f"Generation throughput: {tokens_per_s:.1f} tokens/s"


def is_trace_directory(path: Path) -> bool:
    """Whether a directory holds at least one of the three folders."""
    return any((path / name).is_dir() for name in (PROGRESS_DIR, SAMPLE_DIR, TRAJECTORY_DIR))
