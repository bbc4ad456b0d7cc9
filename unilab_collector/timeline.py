"""The collector's share of the timeline: what stands in place of plain parts when it is recorded.

    SlotTimeline      SAC, PPO: a timer for SlotLoop; one tick is one cycle, one arrow chain
    RolloutTimeline   APPO: reporter, feed and policy of RolloutLoop (see `rollout_timeline`)

SYNC POINTs are not touched: the traced parts only measure around the plain ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from unilab_collector.tick_report import (
    ACTION_WAIT,
    CYCLE_PHASES,
    ENV_STEP,
    REQUEST,
    STEP_DETAILS,
    WRITE,
)
from unilab_core.telemetry.phase_timer import PhaseTimer
from unilab_core.telemetry.timeline.recorder import CpuTimes, TraceRecorder
from unilab_core.telemetry.timeline.session import (
    CYCLE_NAME,
    ROLLOUT,
    ROLLOUT_WALL_TAG,
    TICK,
    back_to_back,
    flow_id,
    make_timer,
    phase_handler,
    title,
)
from unilab_core.telemetry.timeline.traced_timer import LapHandler

MAIN_LANE = "collector"


class SlotTimeline:
    """Ticks over the inference slot: every phase, the parts of a step, the request's arrows."""

    def __init__(
        self,
        recorder: TraceRecorder,
        *,
        rank: int,
        thread_time: bool,
        timings_ns: Callable[[], Mapping[str, int]],
        flight: Callable[[], Mapping[str, int]],
        occupancy: Callable[[], int] | None = None,
        steps_per_rollout: int | None = None,
    ) -> None:
        """Declare the tracks.

        Args:
            recorder: of this process.
            rank: of this process.
            thread_time: also measure CPU time.
            timings_ns: parts of the last ``env.step``.
            flight: gauges of the inference slot.
            occupancy: of the replay ingress, where there is one.
            steps_per_rollout: PPO: ticks that make a rollout.
        """
        self._rank = rank
        self._thread_time = thread_time
        self._timings_ns = timings_ns
        self._flight = flight
        self._occupancy = occupancy
        self._steps = steps_per_rollout
        self._main = recorder.thread_lane(MAIN_LANE)
        self._cycles = recorder.lane(CYCLE_NAME)
        self._rollouts = recorder.lane(title(ROLLOUT_WALL_TAG)) if steps_per_rollout else None
        self._queue_depth = recorder.counter("Inference Queue Depth", "requests")
        self._lag = recorder.counter("Publication Lag", "ticks")
        self._slots = recorder.counter("Ingress Occupancy", "slots") if occupancy else None
        self._tick = 0
        self._rollout_start_ns = 0

    def make_timer(self, phases: Iterable[str]) -> PhaseTimer:
        """In place of ``PhaseTimer``."""
        handlers: dict[str | None, LapHandler] = {
            tag: phase_handler(self._main, tag) for tag in CYCLE_PHASES
        }
        handlers[REQUEST] = self._requested
        handlers[ACTION_WAIT] = self._answered
        handlers[ENV_STEP] = self._stepped
        handlers[WRITE] = self._written
        return make_timer(phases, handlers, self._cycle_done, thread_time=self._thread_time)

    def _flows(self) -> tuple[int]:
        return (flow_id("tick", self._rank, self._tick),)

    def _requested(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        self._main.slice(
            title(REQUEST), start_ns, end_ns, tag=REQUEST, flows=self._flows(), cpu=cpu
        )
        flight = self._flight()
        self._queue_depth.set(end_ns, flight["queue_depth"])
        self._lag.set(end_ns, flight["publication_lag"])

    def _answered(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        self._main.slice(title(ACTION_WAIT), start_ns, end_ns, tag=ACTION_WAIT, cpu=cpu)
        self._queue_depth.set(end_ns, 0)
        if self._steps is not None and self._tick % self._steps == 0:
            self._rollout_start_ns = end_ns  # the learner updates in the wait before it

    def _stepped(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        parts = back_to_back(start_ns, end_ns, self._timings_ns(), STEP_DETAILS)
        self._main.slice(
            title(ENV_STEP),
            start_ns,
            end_ns,
            tag=ENV_STEP,
            flows=self._flows(),
            parts=parts,
            cpu=cpu,
        )

    def _written(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        self._main.slice(title(WRITE), start_ns, end_ns, tag=WRITE, flows=self._flows(), cpu=cpu)
        if self._slots is not None and self._occupancy is not None:
            self._slots.set(end_ns, self._occupancy())

    def _cycle_done(self, start_ns: int, end_ns: int) -> None:
        self._cycles.slice(CYCLE_NAME, start_ns, end_ns, note=(TICK, self._tick))
        self._tick += 1
        if self._rollouts is not None and self._steps and self._tick % self._steps == 0:
            number = self._tick // self._steps - 1
            self._rollouts.slice(
                title(ROLLOUT_WALL_TAG), self._rollout_start_ns, end_ns, note=(ROLLOUT, number)
            )
