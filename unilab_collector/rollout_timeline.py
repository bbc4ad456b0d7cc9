"""APPO's collector on the timeline: traced reporter, feed and policy for RolloutLoop.

The rollout's slice starts an arrow chain that ends with the learner's weights; fetching weights
ends the chain that their publication started. Steps are slices of the main thread, rollouts a track
of their own. With `training.trace_thread_time` a rollout carries its CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from unilab_collector.acting_policy import ActingPolicy
from unilab_collector.rollout_feed import RolloutFeed
from unilab_collector.rollout_report import MLP_INFER, RolloutRecords, RolloutReporter
from unilab_collector.tick_report import ENV_STEP, STEP_DETAILS
from unilab_collector.timeline import MAIN_LANE
from unilab_core.contracts import EnvSpec
from unilab_core.nets.gaussian import GaussianPolicy
from unilab_core.telemetry.timeline.recorder import TraceRecorder
from unilab_core.telemetry.timeline.session import (
    ROLLOUT,
    ROLLOUT_WALL_TAG,
    back_to_back,
    flow_id,
    title,
)
from unilab_ipc.policy_snapshot import SnapshotReader
from unilab_ipc.rollout_ring import RolloutSlot
from unilab_ipc.slot_ring import SlotProducer
from unilab_ipc.waiting import Waiter


class RolloutTimeline:
    """The tracks that the traced parts share."""

    def __init__(self, recorder: TraceRecorder, *, rank: int, thread_time: bool) -> None:
        self.rank = rank
        self.thread_time = thread_time
        self.main = recorder.thread_lane(MAIN_LANE)
        self.rollouts = recorder.lane(title(ROLLOUT_WALL_TAG))
        self.policy_version = recorder.counter("Policy Version", "versions")


class TracedRolloutReporter(RolloutReporter):
    """Steps and rollouts, with the very times that are reported."""

    def __init__(self, records: RolloutRecords, timeline: RolloutTimeline) -> None:
        super().__init__(records)
        self._timeline = timeline
        self._number = 0
        self._cpu_ns = time.thread_time_ns()

    def add_step(
        self, start_ns: int, acted_ns: int, end_ns: int, timings_ns: Mapping[str, int]
    ) -> None:
        """As the plain reporter."""
        super().add_step(start_ns, acted_ns, end_ns, timings_ns)
        main = self._timeline.main
        main.slice(title(MLP_INFER), start_ns, acted_ns, tag=MLP_INFER)
        parts = back_to_back(acted_ns, end_ns, timings_ns, STEP_DETAILS)
        main.slice(title(ENV_STEP), acted_ns, end_ns, tag=ENV_STEP, parts=parts)

    def publish(self, *, tick: int, env_steps: int, start_ns: int, end_ns: int) -> None:
        """As the plain reporter."""
        timeline = self._timeline
        began_ns, self._cpu_ns = self._cpu_ns, time.thread_time_ns()
        timeline.rollouts.slice(
            title(ROLLOUT_WALL_TAG),
            start_ns,
            end_ns,
            tag=ROLLOUT_WALL_TAG,
            flows=(flow_id("rollout", timeline.rank, self._number),),
            note=(ROLLOUT, self._number),
            cpu=(began_ns, self._cpu_ns) if timeline.thread_time else None,
        )
        self._number += 1
        super().publish(tick=tick, env_steps=env_steps, start_ns=start_ns, end_ns=end_ns)


class TracedRolloutFeed(RolloutFeed):
    """The wait for a free slot."""

    def __init__(
        self,
        producer: SlotProducer[RolloutSlot],
        spec: EnvSpec,
        steps: int,
        waiter: Waiter,
        timeline: RolloutTimeline,
    ) -> None:
        super().__init__(producer, spec, steps, waiter)
        self._timeline = timeline

    def claim(self) -> None:
        """As the plain feed."""
        start_ns = time.monotonic_ns()
        super().claim()
        self._timeline.main.slice("Slot Wait", start_ns, time.monotonic_ns())


class TracedActingPolicy(ActingPolicy):
    """The arrival of weights."""

    def __init__(
        self,
        policy: GaussianPolicy,
        reader: SnapshotReader,
        waiter: Waiter,
        seed: int,
        timeline: RolloutTimeline,
    ) -> None:
        super().__init__(policy, reader, waiter, seed)
        self._timeline = timeline

    def refresh(self) -> None:
        """As the plain policy."""
        before, start_ns = self.version, time.monotonic_ns()
        super().refresh()
        end_ns, timeline = time.monotonic_ns(), self._timeline
        ends: tuple[int, ...] = ()
        if self.version != before:
            ends = (flow_id("weights", timeline.rank, self.version),)
            timeline.policy_version.set(end_ns, self.version)
        timeline.main.slice("Weight Fetch", start_ns, end_ns, ends=ends)
