"""The collector's own clock: exclusive cycle phases, nested step details and the tick record.

One cycle runs from one request publication to the next:

    inference_request | metrics_publish | learner_action_wait
    | env_step | transition_extract | replay_write

The record of a cycle is published after the next request, while the learner infers, so the
publication is paid in time that the collector would otherwise wait; its cost is the
``metrics_publish`` phase of the cycle in which it happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from unilab_collector.episode_stats import EpisodeStats
from unilab_core.telemetry.phase_timer import NS_PER_MS, PhaseTimer
from unilab_core.telemetry.records import CollectorReport
from unilab_ipc.metric_queue import RingWriter

REQUEST = "Perf/collector_inference_request_ms"
PUBLISH = "Perf/collector_metrics_publish_ms"
ACTION_WAIT = "Perf/collector_learner_action_wait_ms"
ENV_STEP = "Perf/collector_env_step_ms"
EXTRACT = "Perf/collector_transition_extract_ms"
WRITE = "Perf/collector_replay_write_ms"
CYCLE_PHASES = (REQUEST, PUBLISH, ACTION_WAIT, ENV_STEP, EXTRACT, WRITE)

STEP_DETAILS = {
    "action_validate": "Perf/collector_env_step_action_validate_ms",
    "apply_action": "Perf/collector_env_step_apply_action_ms",
    "action_backend": "Perf/collector_env_step_action_backend_ms",
    "backend": "Perf/collector_env_step_backend_ms",
    "update_state": "Perf/collector_env_step_update_state_ms",
    "reset_done": "Perf/collector_env_step_reset_done_ms",
}

INFERENCE_GAUGES = {
    "queue_depth": "Perf/collector_inference_queue_depth",
    "action_backlog": "Perf/collector_inference_action_backlog",
    "in_flight": "Perf/collector_inference_in_flight",
    "publication_lag": "Perf/collector_inference_publication_lag",
}
INFERENCE_MAXIMA = {
    "action_backlog": "Perf/collector_inference_max_action_backlog",
    "in_flight": "Perf/collector_inference_max_in_flight",
    "publication_lag": "Perf/collector_inference_max_publication_lag",
}

MakeTimer = Callable[[Iterable[str]], PhaseTimer]
"""PhaseTimer, or what stands in its place when the timeline is recorded."""


class TickReporter:
    """Builds and publishes one record per ``training.collector_metrics_interval`` ticks.

    Attributes:
        timer: the phase clock that the loop laps.
    """

    def __init__(
        self,
        *,
        ring: RingWriter,
        stats: EpisodeStats,
        rank: int,
        interval: int,
        make_timer: MakeTimer = PhaseTimer,
    ) -> None:
        self.timer = make_timer(CYCLE_PHASES)
        self._ring = ring
        self._stats = stats
        self._rank = rank
        self._interval = interval
        self._step_ns = dict.fromkeys(STEP_DETAILS, 0)
        self._gauges: dict[str, int] = dict.fromkeys(INFERENCE_GAUGES, 0)
        self._maxima: dict[str, int] = dict.fromkeys(INFERENCE_MAXIMA, 0)

    def add_step_details(self, timings_ns: Mapping[str, int]) -> None:
        """Add the nested times of one ``env.step`` (ns per detail, see ``Env.timings_ns``)."""
        for name in self._step_ns:
            self._step_ns[name] += timings_ns[name]

    def note_flight(self, flight: Mapping[str, int]) -> None:
        """Keep the newest inference gauges and their maxima since the last accepted record."""
        for name in self._gauges:
            self._gauges[name] = int(flight[name])
        for name in self._maxima:
            self._maxima[name] = max(self._maxima[name], int(flight[name]))

    def publish_due(self, *, tick: int, env_steps: int, force: bool = False) -> None:
        """Publish the record of the completed cycles when ``interval`` of them are collected.

        Args:
            tick: last completed vector tick.
            env_steps: transitions published by this process; the learner adds a resumed
                run's.
            force: publish whatever is there (the last record of a run).
        """
        cycles = self.timer.cycles
        if cycles == 0 or (cycles < self._interval and not force):
            return
        phases = self.timer.mean_ms()
        scale = 1.0 / (NS_PER_MS * cycles)
        timing = dict(phases)
        for name, tag in STEP_DETAILS.items():
            timing[tag] = self._step_ns[name] * scale
        rewards, terminations, totals = self._stats.take_terms()
        inference = {tag: self._gauges[name] for name, tag in INFERENCE_GAUGES.items()}
        inference |= {tag: self._maxima[name] for name, tag in INFERENCE_MAXIMA.items()}
        report = CollectorReport(
            rank=self._rank,
            t_ns=time.monotonic_ns(),
            tick=tick,
            env_steps=env_steps,
            timing=timing,
            cycle_ms=sum(phases.values()),
            wall_ms=self.timer.mean_wall_ms(),
            inference=inference,
            episodes_completed=self._stats.completed,
            timeouts=self._stats.timeouts,
            mean_return=self._stats.mean_return(),
            mean_length=self._stats.mean_length(),
            rewards=rewards,
            terminations=terminations,
            terminations_total=totals,
            dropped=dict(self._stats.dropped),
        )
        if self._ring.write(report.record()):
            self._maxima = dict.fromkeys(INFERENCE_MAXIMA, 0)
        self.timer.clear()
        self._step_ns = dict.fromkeys(STEP_DETAILS, 0)
