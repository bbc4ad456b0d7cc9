"""The learner's share of the timeline: what stands in place of plain parts when it is recorded.

    LearnerTimeline      tracks that every algorithm has: phases, iterations, policy version, CUDA
    OffPolicyTimeline    SAC family: the request's arrows up to the batch that first holds its rows
    AsyncTimeline        APPO: the rollout's arrows up to the weights made from it

PPO's is in `ppo_timeline`. Nothing of this is constructed when tracing is off.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from unilab_core.telemetry.phase_timer import PhaseTimer
from unilab_core.telemetry.timeline.recorder import CpuTimes, TraceRecorder
from unilab_core.telemetry.timeline.session import (
    ITER_WALL_TAG,
    ITERATION,
    back_to_back,
    flow_id,
    make_timer,
    title,
)
from unilab_core.telemetry.timeline.traced_timer import LapHandler
from unilab_ipc.replay_ingress import TransitionSlot
from unilab_ipc.slot_ring import SlotConsumer
from unilab_learner.cuda_lane import CudaLane
from unilab_learner.inference_server import D2H, FORWARD, H2D, InferenceServer
from unilab_learner.replay.buffer import ReplayBuffer, StoredTick
from unilab_learner.replay.ingress_drain import IngressDrain

MAX_ARROWS = 256
"""Arrows kept open, or drawn into one slice."""
LEARNING_TAG = "Perf/learning_time"


def phase_tag(phase: str) -> str:
    """Metric of a loop's phase."""
    return LEARNING_TAG if phase == "learning" else f"Perf/learner_{phase}_ms"


class LearnerTimeline:
    """Phases on the main thread, iterations on a track of their own."""

    def __init__(
        self,
        recorder: TraceRecorder,
        *,
        rank: int,
        thread_time: bool,
        iteration: Callable[[], int],
        cuda: CudaLane | None = None,
    ) -> None:
        """Declare the tracks.

        Args:
            recorder: of this process.
            rank: of this process.
            thread_time: also measure CPU time.
            iteration: iterations finished so far.
            cuda: the device's side of the phases.
        """
        self.recorder = recorder
        self.rank = rank
        self.main = recorder.thread_lane("learner")
        self._iterations = recorder.lane(title(ITER_WALL_TAG))
        self._policy_version = recorder.counter("Policy Version", "versions")
        self._thread_time = thread_time
        self._iteration = iteration
        self._cuda = cuda

    def timer(self, phases: Iterable[str], handlers: Mapping[str | None, LapHandler]) -> PhaseTimer:
        """A timer whose phases are slices, those with a handler through it."""
        phases = list(phases)
        plain = {phase: self._plain(phase) for phase in phases}
        wanted: dict[str | None, LapHandler] = {**plain, **handlers}
        if self._cuda is not None:
            wanted = {phase: self._marked(phase, wanted[phase], self._cuda) for phase in wanted}
        return make_timer(phases, wanted, self._cycle_done, thread_time=self._thread_time)

    def put(
        self,
        phase: str,
        start_ns: int,
        end_ns: int,
        cpu: CpuTimes | None,
        *,
        flows: Sequence[int] = (),
        ends: Sequence[int] = (),
    ) -> None:
        """A phase with arrows."""
        tag = phase_tag(phase)
        self.main.slice(title(tag), start_ns, end_ns, tag=tag, flows=flows, ends=ends, cpu=cpu)

    def _plain(self, phase: str) -> LapHandler:
        return lambda start_ns, end_ns, cpu: self.put(phase, start_ns, end_ns, cpu)

    def _marked(self, phase: str | None, handler: LapHandler, cuda: CudaLane) -> LapHandler:
        name = "" if phase is None else title(phase_tag(phase))
        settled = phase == "learning"  # the loop has read its figures: the stream is empty

        def handle(start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
            handler(start_ns, end_ns, cpu)
            cuda.mark(name, end_ns, settled=settled)

        return handle

    def _cycle_done(self, start_ns: int, end_ns: int) -> None:
        iteration = self._iteration()
        self._iterations.slice(
            title(ITER_WALL_TAG), start_ns, end_ns, tag=ITER_WALL_TAG, note=(ITERATION, iteration)
        )
        self._policy_version.set(end_ns, iteration)


class OffPolicyTimeline:
    """Requests in order of arrival, ticks in the ingress, and which batch first holds each."""

    DETAILS: Mapping[str, str] = {
        part: f"Perf/learner_inference_{part}_ms" for part in (H2D, FORWARD, D2H)
    }

    def __init__(
        self,
        base: LearnerTimeline,
        *,
        server: InferenceServer,
        replay: ReplayBuffer,
        occupancy: Callable[[], int],
    ) -> None:
        self._base = base
        self._server = server
        self._replay = replay
        self._occupancy = occupancy
        self._lane = base.recorder.lane("replay")
        self._slots = base.recorder.counter("Ingress Occupancy", "slots")
        self._num_served = 0
        self._nested_ns = server.nested_ns
        self._nested_before = dict(server.nested_ns)
        self._stored: deque[int] = deque(maxlen=MAX_ARROWS)
        self._gather_ns = (0, 0)
        self._drained_ns = 0

    def make_timer(self, phases: Iterable[str]) -> PhaseTimer:
        """In place of `PhaseTimer`; warm-up and training share the counts."""
        return self._base.timer(
            phases,
            {
                "inference": self._inferred,
                "collector_release": self._released,
                "replay_batch_wait": self._gathered,
                "learning": self._learned,
            },
        )

    def drained(self, start_ns: int, ends_ns: Sequence[int]) -> None:
        """Ticks went from the ingress into the replay, one after the other."""
        tick = self._replay.ticks_written - len(ends_ns)
        for end_ns in ends_ns:
            self._stored.append(tick)
            self._lane.slice("Ingress Commit", start_ns, end_ns, flows=self._flows([tick]))
            start_ns = end_ns
            tick += 1
        self._drained_ns = time.monotonic_ns()
        if ends_ns:
            self._slots.set(self._drained_ns, self._occupancy())

    def _inferred(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        nested = self._server.nested_ns
        if nested is not self._nested_ns:  # cleared since, which makes a new one
            self._nested_ns, self._nested_before = nested, dict.fromkeys(nested, 0)
        spent = {part: nested[part] - self._nested_before[part] for part in nested}
        self._nested_before = dict(nested)
        tag = phase_tag("inference")
        self._base.main.slice(
            title(tag),
            start_ns,
            end_ns,
            tag=tag,
            flows=self._flows([self._num_served]),
            parts=back_to_back(start_ns, end_ns, spent, self.DETAILS),
            cpu=cpu,
        )

    def _released(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        flows = self._flows([self._num_served])
        self._base.put("collector_release", start_ns, end_ns, cpu, flows=flows)
        self._num_served += 1

    def _gathered(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        self._base.put("replay_batch_wait", start_ns, end_ns, cpu)
        self._gather_ns = (max(self._drained_ns, start_ns), end_ns)

    def _learned(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        flows = self._flows(self._take_drawn())
        # Only now: on a device the drawn ticks can be read without waiting for it.
        self._lane.slice("Gather", *self._gather_ns, flows=flows)
        self._base.put("learning", start_ns, end_ns, cpu, ends=flows)

    def _take_drawn(self) -> list[int]:
        """Stored ticks that the last batch is the first to hold."""
        draw = self._replay.last_draw
        if draw is None or not self._stored:
            return []
        drawn = draw[0]
        recent = drawn[drawn >= self._stored[0]]
        found = sorted(set(recent.tolist()).intersection(self._stored))
        if found:
            taken = set(found)
            rest = [tick for tick in self._stored if tick not in taken]
            self._stored = deque(rest, maxlen=MAX_ARROWS)
        return found

    def _flows(self, ticks: Iterable[int]) -> tuple[int, ...]:
        return tuple(flow_id("tick", self._base.rank, tick) for tick in ticks)


class TracedDrain(IngressDrain):
    """Tells the timeline of every tick."""

    timeline: OffPolicyTimeline | None = None
    """Set once both exist."""

    def __init__(
        self,
        consumer: SlotConsumer[TransitionSlot],
        replay: ReplayBuffer,
        on_tick: Callable[[StoredTick], None],
    ) -> None:
        def mark(tick: StoredTick) -> None:
            on_tick(tick)
            self._ends_ns.append(time.monotonic_ns())

        super().__init__(consumer, replay, mark)
        self._ends_ns: list[int] = []

    def drain(self) -> int:
        """As the plain drain."""
        start_ns = time.monotonic_ns()
        ticks = super().drain()
        if self.timeline is not None:
            self.timeline.drained(start_ns, self._ends_ns)
        self._ends_ns.clear()
        return ticks


class AsyncTimeline:
    """Rollouts in the order of the ring, and the weights made from them."""

    def __init__(
        self,
        base: LearnerTimeline,
        *,
        occupancy: Callable[[], int],
        policy_lag: Callable[[], int],
        version: Callable[[], int],
    ) -> None:
        self._base = base
        self._occupancy = occupancy
        self._policy_lag = policy_lag
        self._version = version
        self._ring = base.recorder.counter("Ring Occupancy", "slots")
        self._lag = base.recorder.counter("Policy Lag", "versions")
        self._num_staged = 0
        self._arrows: list[int] = []

    def make_timer(self, phases: Iterable[str]) -> PhaseTimer:
        """In place of `PhaseTimer`."""
        return self._base.timer(
            phases,
            {
                "collector_wait": self._waited,
                "replay_stage": self._staged,
                "replay_sample": self._sampled,
                "learning": self._learned,
                "weight_publish": self._published,
            },
        )

    def _waited(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        self._base.put("collector_wait", start_ns, end_ns, cpu)
        self._ring.set(end_ns, self._occupancy())

    def _staged(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        arrow = flow_id("rollout", self._base.rank, self._num_staged)
        self._num_staged += 1
        self._arrows.append(arrow)
        self._base.put("replay_stage", start_ns, end_ns, cpu, flows=(arrow,))
        self._ring.set(end_ns, self._occupancy())
        self._lag.set(end_ns, self._policy_lag())

    def _sampled(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        self._base.put("replay_sample", start_ns, end_ns, cpu, flows=tuple(self._arrows))

    def _learned(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        self._base.put("learning", start_ns, end_ns, cpu, flows=tuple(self._arrows))

    def _published(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        weights = (flow_id("weights", self._base.rank, self._version()),)
        ends, self._arrows = tuple(self._arrows), []
        self._base.put("weight_publish", start_ns, end_ns, cpu, flows=weights, ends=ends)
