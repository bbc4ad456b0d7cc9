"""What both roles do with the timeline: open it as configured, name slices, number arrows.

Arrows (flows) of Perfetto are ids that several slices share; each algorithm has its chain:

    SAC   request -> inference -> response -> environment step -> replay write -> ingress commit
          -> gather (of the first batch that holds a row of the tick) -> learning
    PPO   request -> inference -> response -> environment step -> write -> store -> learning
    APPO  rollout -> stage -> sample -> learning -> weight publish, and
          weight publish -> weight fetch of the next rollout
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from unilab_core.config.training import TrainingConfig
from unilab_core.telemetry.metric_schema import METRICS
from unilab_core.telemetry.timeline.files import (
    part_path,
    sequence_number,
    timeline_folder,
)
from unilab_core.telemetry.timeline.packets import ProcessId
from unilab_core.telemetry.timeline.recorder import Lane, Span, TraceRecorder
from unilab_core.telemetry.timeline.traced_timer import (
    CpuTracedTimer,
    CycleHandler,
    LapHandler,
    TracedTimer,
)

ITERATION, TICK, ROLLOUT = "iteration", "tick", "rollout"
"""Names of the numbers that slices of whole cycles carry."""
ITER_WALL_TAG, ROLLOUT_WALL_TAG = "Perf/iteration_time", "Perf/collection_time"
CYCLE_NAME = "Cycle Wall"

_FLOWS = {"tick": 1, "rollout": 2, "weights": 3}


def open_timeline(
    training: TrainingConfig, run_dir: Path, run_id: str, role: str, rank: int
) -> TraceRecorder | None:
    """The recorder of this process; None when tracing is off."""
    if not training.trace_enabled:
        return None
    folder = timeline_folder(run_dir, training.trace_output_dir)
    process = ProcessId(
        name=f"{role}-{rank}", pid=os.getpid(), sequence=sequence_number(role, rank)
    )
    return TraceRecorder(part_path(folder, run_id, role, rank), process)


def flow_id(kind: Literal["tick", "rollout", "weights"], rank: int, number: int) -> int:
    """One arrow chain: what travels, whose it is, which one."""
    return _FLOWS[kind] << 56 | rank << 48 | number


def title(tag: str) -> str:
    """Name of a metric as monitors show it."""
    return METRICS[tag].label


def phase_handler(lane: Lane, tag: str) -> LapHandler:
    """A phase that is one slice and nothing else."""
    name = title(tag)

    def handle(start_ns: int, end_ns: int, cpu: tuple[int, int] | None) -> None:
        lane.slice(name, start_ns, end_ns, tag=tag, cpu=cpu)

    return handle


def make_timer(
    phases: Iterable[str],
    handlers: Mapping[str | None, LapHandler],
    on_cycle: CycleHandler,
    *,
    thread_time: bool,
) -> TracedTimer:
    """The timer of a traced loop (`training.trace_thread_time`)."""
    kind = CpuTracedTimer if thread_time else TracedTimer
    return kind(phases, handlers, on_cycle)


def back_to_back(
    start_ns: int, end_ns: int, durations_ns: Mapping[str, int], tags: Mapping[str, str]
) -> list[Span]:
    """Parts of a slice that follow each other from its begin, of which only lengths are known."""
    spans: list[Span] = []
    at_ns = start_ns
    for name, tag in tags.items():
        until_ns = min(at_ns + durations_ns[name], end_ns)
        if until_ns > at_ns:
            spans.append((title(tag), tag, at_ns, until_ns))
        at_ns = until_ns
    return spans
