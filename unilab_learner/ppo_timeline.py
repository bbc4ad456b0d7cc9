"""PPO's learner on the timeline: inference, waits and storing inside the rollout, then learning.

One arrow chain per tick: request -> inference -> response -> environment step -> store -> learning.
The only phase of the schema is Learning; the other slices show where the rollout's time went.
"""

import time
from collections.abc import Iterable
from typing import Any

from tensordict import TensorDict
from torch import Tensor

from unilab_core.telemetry.phase_timer import PhaseTimer
from unilab_core.telemetry.timeline.recorder import CpuTimes
from unilab_core.telemetry.timeline.session import flow_id
from unilab_learner.ppo_learner import PpoLearner
from unilab_learner.slot_vec_env import SlotVecEnv
from unilab_learner.timeline import MAX_ARROWS, LearnerTimeline


class PpoTimeline:
    """Which tick is where."""

    def __init__(self, base: LearnerTimeline) -> None:
        self._base = base
        self._tick = -1
        self._stored: list[int] = []

    def make_timer(self, phases: Iterable[str]) -> PhaseTimer:
        """In place of `PhaseTimer`."""
        return self._base.timer(phases, {"learning": self._learned})

    def requested(self, start_ns: int) -> None:
        """A request was waited for and is there."""
        self._tick += 1
        self._base.main.slice("Request Wait", start_ns, time.monotonic_ns())

    def inferred(self, start_ns: int) -> None:
        """Actions for the request that is there were computed."""
        self._slice("Inference", start_ns, self._tick)

    def responded(self, start_ns: int) -> None:
        """Actions were handed over."""
        self._slice("Response", start_ns, self._tick)

    def stored(self, start_ns: int) -> None:
        """The transition that came with the newest request was stored."""
        self._slice("Store", start_ns, self._tick - 1)
        self._stored.append(self._tick - 1)

    def _learned(self, start_ns: int, end_ns: int, cpu: CpuTimes | None) -> None:
        ends = tuple(flow_id("tick", self._base.rank, tick) for tick in self._stored[-MAX_ARROWS:])
        self._stored = []
        self._base.put("learning", start_ns, end_ns, cpu, ends=ends)

    def _slice(self, name: str, start_ns: int, tick: int) -> None:
        flows = (flow_id("tick", self._base.rank, tick),)
        self._base.main.slice(name, start_ns, time.monotonic_ns(), flows=flows)


class TracedSlotVecEnv(SlotVecEnv):
    """Tells the timeline of requests and responses."""

    timeline: PpoTimeline | None = None
    """Set once both exist."""

    def _await_request(self) -> None:
        start_ns = time.monotonic_ns()
        super()._await_request()
        if self.timeline is not None:
            self.timeline.requested(start_ns)

    def begin(self, actions: Tensor) -> None:
        """As the plain environment."""
        start_ns = time.monotonic_ns()
        super().begin(actions)
        if self.timeline is not None:
            self.timeline.responded(start_ns)


class TracedPpoLearner(PpoLearner):
    """Tells the timeline of inference and storing."""

    timeline: PpoTimeline | None = None
    """Set once both exist."""

    def act(self, obs: TensorDict) -> Tensor:
        """As the plain learner."""
        start_ns = time.monotonic_ns()
        actions = super().act(obs)
        if self.timeline is not None:
            self.timeline.inferred(start_ns)
        return actions

    def store(
        self, next_obs: TensorDict, reward: Tensor, dones: Tensor, extras: dict[str, Any]
    ) -> None:
        """As the plain learner."""
        start_ns = time.monotonic_ns()
        super().store(next_obs, reward, dones, extras)
        if self.timeline is not None:
            self.timeline.stored(start_ns)
