"""All figures at one time, and what they need from more than one kind of file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from unilab_core.telemetry.rl_trace.damage import Damage
from unilab_core.telemetry.rl_trace.flow_figures import FlowFigures
from unilab_core.telemetry.rl_trace.flow_store import NEVER, FlowStore
from unilab_core.telemetry.rl_trace.progress_figures import ProgressFigures, recent_tasks
from unilab_core.telemetry.rl_trace.progress_store import ProgressStore
from unilab_core.telemetry.rl_trace.progress_times import Anchors
from unilab_core.telemetry.rl_trace.stage_aliases import Milestone
from unilab_core.telemetry.rl_trace.step_figures import StepFigures
from unilab_core.telemetry.rl_trace.trajectory_index import TrajectoryRow

FEW_ROWS = 16
"""A job with fewer rows is not shown while another has many: its id may be a torn one."""


class Depth(IntEnum):
    """Which figures are made anew; those that are not stay as they were."""

    LINES = 0
    """Progress lines, trajectory lines, damage."""
    STEPS = 1
    """Also the sample flow of each step."""
    FLOW = 2
    """Everything."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All figures at one time."""

    root: Path
    now_ms: int
    running: bool
    job: str | None
    jobs: tuple[str, ...]
    complete: bool
    """Everything on disk has been read."""
    read_bytes: int
    total_bytes: int
    num_rows: int
    progress: ProgressFigures
    flow: FlowFigures
    steps: tuple[StepFigures, ...]
    trainer_idle_pct: float | None
    num_trajectories: int
    num_with_flow: int
    damage: Damage
    pending_bytes: int
    """Unfinished last lines."""
    ignored: tuple[str, ...]
    missing_folders: tuple[str, ...]
    last_event_ms: int | None
    damaged_files: tuple[tuple[str, Damage], ...]
    slow_trajectories: tuple[TrajectoryRow, ...]
    """Summaries of the longest trajectories of the trajectory files."""


def choose_job(store: FlowStore, selected: str | None) -> int | None:
    """The selected job, else the one with the newest event among those with enough rows."""
    names = {number: name for name, number in store.ids.jobs.items()}
    if selected is not None:
        for number, name in names.items():
            if name.decode("utf-8", "replace") == selected:
                return number
    most = max(store.job_rows.values(), default=0)
    enough = [n for n, rows in store.job_rows.items() if rows >= FEW_ROWS or rows * 10 >= most]
    if not enough:
        return min(names, default=None)
    return max(enough, key=lambda number: (store.job_span[number][1], names[number]))


def job_name(store: FlowStore, job: int) -> str | None:
    """Name of a job number."""
    for name, number in store.ids.jobs.items():
        if number == job:
            return name.decode("utf-8", "replace")
    return None


def anchors_of(
    store: FlowStore, progress: ProgressStore, job: int, rows: list[StepFigures]
) -> Anchors:
    """Times in the sample flow of a job that lines of progress files stand for."""
    sync_ends: dict[int, int] = {}
    for unix_ms, version in sorted(store.syncs.get(job, ())):
        sync_ends.setdefault(version, unix_ms)
    tasks = recent_tasks(progress)
    codes = store.ids.find(job, [f"{uid}/{index}" for uid, index in tasks])
    rewards = {
        task: int(store.milestones[code, Milestone.REWARD])
        for task, code in zip(tasks, codes, strict=True)
        if 0 <= code < len(store.milestones)
    }
    return Anchors(
        step_starts=store.step_starts.get(job, {}),
        update_ends={row.step: row.trained_ms for row in rows if row.trained_ms is not None},
        sync_ends=sync_ends,
        rewards={task: unix_ms for task, unix_ms in rewards.items() if unix_ms != NEVER},
        span=store.job_span.get(job),
    )
