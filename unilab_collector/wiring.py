"""Each algorithm's collector loop, built from the job's segments.

SAC     inference slot, transitions into the replay ingress        SlotLoop
PPO     inference slot, transitions with the next request          SlotLoop
APPO    own policy, rollouts into the rollout ring                 RolloutLoop
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from unilab_collector.episode_stats import EpisodeStats
from unilab_collector.guarded_env import GuardedEnv
from unilab_collector.replay_feed import ReplayFeed
from unilab_collector.rollout_report import RolloutRecords, RolloutReporter, SlotRolloutReporter
from unilab_collector.segment_trace import SegmentTrace, TracedTask
from unilab_collector.slot_loop import SlotLoop
from unilab_collector.step_feed import StepFeed
from unilab_collector.tick_report import TickReporter
from unilab_collector.timeline import SlotTimeline
from unilab_core.config.on_policy import AppoConfig, PpoConfig
from unilab_core.run.child import ChildContext
from unilab_core.run.job_segments import open_ingress, open_rollouts, open_slot
from unilab_core.run.job_trace import open_child_trace
from unilab_core.telemetry.phase_timer import PhaseTimer
from unilab_core.telemetry.timeline.recorder import TraceRecorder
from unilab_ipc.errors import Closed
from unilab_ipc.heartbeat import STOP_NOW
from unilab_ipc.inference_slot import InferenceSlot
from unilab_ipc.metric_queue import RingWriter
from unilab_ipc.peers import Peer
from unilab_ipc.replay_ingress import ReplayIngress

POLICY_SEED_OFFSET = 104_729
"""Keeps the acting policy's random stream apart from the environments'."""


class CollectorLoop(Protocol):
    """What the collector runs."""

    def run(self) -> int:
        """Run to the end of training; the number of ticks or rollouts."""
        ...

    def seqs(self) -> dict[str, int]:
        """Newest sequence numbers, for the error report."""
        ...


@dataclass(kw_only=True, slots=True)
class CollectorParts:
    """What every loop needs."""

    ctx: ChildContext
    stack: ExitStack
    """Closes what the wiring opens."""
    job: dict[str, Any]
    """job.json"""
    env: GuardedEnv
    ring: RingWriter
    learner: Peer
    ring_learner: Callable[[], None]
    recorder: TraceRecorder | None
    """Of the timeline, where that is on."""


def wire(parts: CollectorParts) -> CollectorLoop:
    """The loop of the configured algorithm."""
    algo = parts.ctx.config.algo
    if isinstance(algo, AppoConfig):
        return _wire_rollouts(parts, algo)
    return _wire_slot(parts)


def _wire_slot(parts: CollectorParts) -> SlotLoop:
    ctx, env = parts.ctx, parts.env
    algo = ctx.config.algo
    segment = open_slot(parts.job, env.spec, ctx.rank, transitions=isinstance(algo, PpoConfig))
    parts.stack.callback(segment.close)
    slot = InferenceSlot(segment)
    port = slot.collector_port(parts.ring_learner)
    waiter = ctx.waiter([parts.learner])
    stats = EpisodeStats(env.spec.num_envs, env.dropped)
    if isinstance(algo, PpoConfig):
        feed = StepFeed(port, env.spec)
        records = RolloutRecords(ring=parts.ring, stats=stats, rank=ctx.rank)
        timer = _slot_timer(parts, slot, steps_per_rollout=algo.num_steps_per_env)
        reporter = SlotRolloutReporter(records, algo.num_steps_per_env, timer)
    else:
        training = ctx.config.training
        ingress = open_ingress(parts.job, env.spec, training.replay_ingress_depth, ctx.rank)
        parts.stack.callback(ingress.close)
        replay_ingress = ReplayIngress(ingress)
        producer = replay_ingress.producer(parts.ring_learner)
        feed = ReplayFeed(producer, env.spec, waiter)
        reporter = TickReporter(
            ring=parts.ring,
            stats=stats,
            rank=ctx.rank,
            interval=training.collector_metrics_interval,
            make_timer=_slot_timer(parts, slot, ingress=replay_ingress),
        )
    return SlotLoop(
        env=env,
        slot=slot,
        port=port,
        feed=feed,
        stats=stats,
        reporter=reporter,
        trace=_trace(parts, actor="Learner"),
        waiter=waiter,
        beat=ctx.beat,
        learner_ready=partial(_continue_from, parts),
    )


def _continue_from(parts: CollectorParts) -> None:
    """The learner knows by now which checkpoint a resumed run goes on from: its row says so."""
    ctx, env = parts.ctx, parts.env
    env_steps = ctx.board.row("learner", ctx.rank).env_steps
    if env_steps > 0:
        env.continue_from(env_steps // env.spec.num_envs)


def _slot_timer(
    parts: CollectorParts,
    slot: InferenceSlot,
    *,
    ingress: ReplayIngress | None = None,
    steps_per_rollout: int | None = None,
) -> Callable[[Iterable[str]], PhaseTimer]:
    """The plain timer, or one that records the timeline."""
    if parts.recorder is None:
        return PhaseTimer
    timeline = SlotTimeline(
        parts.recorder,
        rank=parts.ctx.rank,
        thread_time=parts.ctx.config.training.trace_thread_time,
        timings_ns=lambda: parts.env.timings_ns,
        flight=slot.flight,
        occupancy=None if ingress is None else lambda: int(ingress.gauges()["occupancy"]),
        steps_per_rollout=steps_per_rollout,
    )
    return timeline.make_timer


def _wire_rollouts(parts: CollectorParts, algo: AppoConfig) -> CollectorLoop:
    # The policy needs torch, which no other algorithm's collector should load.
    import torch

    from unilab_collector.acting_policy import ActingPolicy
    from unilab_collector.rollout_feed import RolloutFeed
    from unilab_collector.rollout_loop import RolloutLoop
    from unilab_core.nets.gaussian import GaussianPolicy
    from unilab_core.nets.policy_spec import policy_spec
    from unilab_ipc.policy_snapshot import SnapshotReader
    from unilab_ipc.rollout_ring import RolloutRing

    ctx, env = parts.ctx, parts.env
    torch.set_num_threads(ctx.num_threads or 1)
    ring, snapshot = open_rollouts(parts.job, algo, env.spec, ctx.rank)
    for segment in (ring, snapshot):
        parts.stack.callback(segment.close)
    waiter = ctx.waiter([parts.learner])
    stats = EpisodeStats(env.spec.num_envs, env.dropped)
    records = RolloutRecords(ring=parts.ring, stats=stats, rank=ctx.rank)
    producer = RolloutRing(ring).producer(parts.ring_learner)
    spec = policy_spec(algo, obs_width=env.spec.obs_width, action_width=env.spec.action_width)
    network, reader = GaussianPolicy(spec), SnapshotReader(snapshot)
    seed = algo.seed + POLICY_SEED_OFFSET * (ctx.rank + 1)
    steps = algo.steps_per_env
    if parts.recorder is None:
        policy = ActingPolicy(network, reader, waiter, seed)
        feed = RolloutFeed(producer, env.spec, steps, waiter)
        reporter = RolloutReporter(records)
    else:
        from unilab_collector import rollout_timeline as traced

        thread_time = ctx.config.training.trace_thread_time
        timeline = traced.RolloutTimeline(parts.recorder, rank=ctx.rank, thread_time=thread_time)
        policy = traced.TracedActingPolicy(network, reader, waiter, seed, timeline)
        feed = traced.TracedRolloutFeed(producer, env.spec, steps, waiter, timeline)
        reporter = traced.TracedRolloutReporter(records, timeline)

    def check() -> None:
        """Between waits nobody watches the others: look once per vector step."""
        for peer in (parts.learner, ctx.launcher):
            if peer.is_dead():
                raise peer.dead_error()
        if ctx.stop_level() >= STOP_NOW:
            raise Closed("stopped during a rollout")

    return RolloutLoop(
        env=env,
        policy=policy,
        feed=feed,
        stats=stats,
        reporter=reporter,
        trace=_trace(parts, actor="Policy"),
        beat=ctx.beat,
        check=check,
        learner_ready=partial(_continue_from, parts),
    )


def _trace(parts: CollectorParts, *, actor: str) -> SegmentTrace:
    """The collector's share of the RL trace."""
    trace = open_child_trace(parts.ctx, parts.stack)
    spec = parts.env.spec
    task = TracedTask(f"{spec.task} ({spec.sim})", spec.obs_width)
    return SegmentTrace(trace, task, actor=actor)
