"""Reports of whole rollouts (PPO, APPO), in place of one per vector tick.

Perf/collection_time is the wall of one rollout. PPO's leaves out the wait before the rollout's
first action, because the learner updates in it. APPO adds moving averages (0.1) over single steps:
these are no decomposition of the rollout, so the terminal shows no percentages.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from unilab_collector.episode_stats import EpisodeStats
from unilab_collector.tick_report import (
    ACTION_WAIT,
    CYCLE_PHASES,
    ENV_STEP,
    INFERENCE_MAXIMA,
    STEP_DETAILS,
    MakeTimer,
)
from unilab_core.telemetry.phase_timer import NS_PER_MS, PhaseTimer
from unilab_core.telemetry.records import CollectorReport
from unilab_ipc.metric_queue import RingWriter

COLLECTION_TIME = "Perf/collection_time"
MLP_INFER = "Perf/collector_mlp_infer_ms"
EMA_ALPHA = 0.1
NS_PER_S = 1_000_000_000


class RolloutRecords:
    """Writes the records that both reporters share."""

    def __init__(self, *, ring: RingWriter, stats: EpisodeStats, rank: int) -> None:
        self._ring = ring
        self._stats = stats
        self._rank = rank

    def write(
        self,
        *,
        tick: int,
        env_steps: int,
        wall_ns: int,
        timing: Mapping[str, float],
        flight: Mapping[str, int] | None = None,
    ) -> bool:
        """One record: episode figures so far, and the rollout's times; whether it was accepted.

        `flight` is for the runtime manifest alone: PPO has no tags for its gauges.
        """
        rewards, terminations, totals = self._stats.take_terms()
        report = CollectorReport(
            rank=self._rank,
            t_ns=time.monotonic_ns(),
            tick=tick,
            env_steps=env_steps,
            timing={COLLECTION_TIME: wall_ns / NS_PER_S, **timing},
            cycle_ms=None,
            wall_ms=wall_ns / NS_PER_MS,
            inference={},
            episodes_completed=self._stats.completed,
            timeouts=self._stats.timeouts,
            mean_return=self._stats.mean_return(),
            mean_length=self._stats.mean_length(),
            rewards=rewards,
            terminations=terminations,
            terminations_total=totals,
            dropped=dict(self._stats.dropped),
        )
        return self._ring.write({**report.record(), "flight": dict(flight or {})})


class SlotRolloutReporter:
    """PPO: stands where SAC has its TickReporter.

    Attributes:
        timer: the phase clock that SlotLoop laps.
    """

    def __init__(
        self,
        records: RolloutRecords,
        steps_per_rollout: int,
        make_timer: MakeTimer = PhaseTimer,
    ) -> None:
        self.timer = make_timer(CYCLE_PHASES)
        self._records = records
        self._steps = steps_per_rollout
        self._first_wait_ns = 0
        self._flight: dict[str, int] = {}

    def add_step_details(self, timings_ns: Mapping[str, int]) -> None:
        """PPO has no tags for the parts of a step."""

    def note_flight(self, flight: Mapping[str, int]) -> None:
        """Keep the newest gauges and their maxima since the last accepted record."""
        maxima = {f"max_{name}": flight[name] for name in INFERENCE_MAXIMA}
        for name, value in maxima.items():
            maxima[name] = max(value, self._flight.get(name, 0))
        self._flight = {**flight, **maxima}

    def publish_due(self, *, tick: int, env_steps: int, force: bool = False) -> None:
        """Publish once a rollout of vector ticks is complete.

        Args:
            tick: last completed vector tick.
            env_steps: transitions published by this process.
            force: publish whatever is there (the last record of a run).
        """
        timer = self.timer
        if timer.cycles == 1:
            self._first_wait_ns = timer.phase_ns[ACTION_WAIT]
        if timer.cycles == 0 or (timer.cycles < self._steps and not force):
            return
        wall_ns = timer.wall_ns - self._first_wait_ns
        accepted = self._records.write(
            tick=tick, env_steps=env_steps, wall_ns=wall_ns, timing={}, flight=self._flight
        )
        if accepted:
            self._flight = {}
        timer.clear()


class RolloutReporter:
    """APPO: rollout wall, and moving averages of inference and step."""

    def __init__(self, records: RolloutRecords) -> None:
        self._records = records
        self._averages_ms: dict[str, float] = {}

    def add_step(
        self, start_ns: int, acted_ns: int, end_ns: int, timings_ns: Mapping[str, int]
    ) -> None:
        """Fold one vector step: policy forward up to `acted_ns`, `env.step`, its parts."""
        self._fold(MLP_INFER, acted_ns - start_ns)
        self._fold(ENV_STEP, end_ns - acted_ns)
        for name, tag in STEP_DETAILS.items():
            self._fold(tag, timings_ns[name])

    def publish(self, *, tick: int, env_steps: int, start_ns: int, end_ns: int) -> None:
        """One record for a finished rollout."""
        self._records.write(
            tick=tick, env_steps=env_steps, wall_ns=end_ns - start_ns, timing=self._averages_ms
        )

    def _fold(self, tag: str, spent_ns: int) -> None:
        spent_ms = spent_ns / NS_PER_MS
        before_ms = self._averages_ms.get(tag, spent_ms)
        self._averages_ms[tag] = before_ms + EMA_ALPHA * (spent_ms - before_ms)
