"""Each algorithm's loop, built from the job's segments; nothing else knows all the parts.

    off-policy   inference slot + replay ingress    OffPolicyLoop
    PPO          inference slot                     OnPolicyLoop
    APPO         rollout ring + policy snapshot     AsyncLoop

Loops are imported where they are wired: PPO's pulls in rsl-rl-lib and tensordict, which nobody else
should wait for.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from unilab_core.contracts import EnvSpec
from unilab_core.run.child import ChildContext
from unilab_core.run.job_segments import open_ingress, open_rollouts, open_slot
from unilab_core.run.job_trace import open_child_trace
from unilab_core.telemetry.phase_timer import PhaseTimer
from unilab_core.telemetry.timeline.recorder import TraceRecorder
from unilab_core.telemetry.training_logger import TrainingLogger
from unilab_ipc.doorbell import Doorbell
from unilab_ipc.inference_slot import InferenceSlot
from unilab_ipc.metric_queue import RingReader
from unilab_ipc.peers import Peer
from unilab_learner.learner import Learner, OffPolicyLearner
from unilab_learner.saver import Progress, Saver
from unilab_learner.session_result import inference_sections
from unilab_learner.step_trace import ReplayTrace, StepTrace

if TYPE_CHECKING:
    from unilab_learner.timeline import LearnerTimeline

T = TypeVar("T")

Records = Sequence[Mapping[str, Any]]


class TrainingLoop(Protocol):
    """What the session runs."""

    @property
    def elapsed_s(self) -> float:
        """Time since the loop was built."""
        ...

    @property
    def last_reports(self) -> Records:
        """Collector records of the newest iteration that had any."""
        ...

    def run(self) -> str:
        """Train; return why it ended."""
        ...


@dataclass(kw_only=True, slots=True)
class SessionParts:
    """What every loop needs."""

    ctx: ChildContext
    stack: ExitStack
    """Closes what the wiring opens."""
    job: dict[str, Any]
    """job.json"""
    spec: EnvSpec
    learner: Learner
    saver: Saver
    logger: TrainingLogger
    collector_ring: RingReader
    collector: Peer
    collector_bell: Doorbell
    progress: Progress
    recorder: TraceRecorder | None
    """Of the timeline, where that is on."""


def _never() -> None:
    return None


@dataclass(kw_only=True, slots=True)
class Wired:
    """A loop ready to run."""

    loop: TrainingLoop
    sections: Callable[[Records], dict[str, Any]]
    """Transport sections of the manifest, from the collector's last records."""
    summary: Callable[[], dict[str, Any]] = dict
    """Fields of the summary that only this algorithm has."""
    first_tick_ns: Callable[[], int | None] = _never
    """When the first request was answered (monotonic); None where the learner answers none."""


def wire(parts: SessionParts) -> Wired:
    """The loop of the configured algorithm."""
    algo = parts.ctx.config.algo.algo
    if algo == "ppo":
        return _wire_ppo(parts)
    if algo == "appo":
        return _wire_appo(parts)
    return _wire_off_policy(parts)


def _wire_off_policy(parts: SessionParts) -> Wired:
    from unilab_ipc.replay_ingress import ReplayIngress
    from unilab_learner.inference_server import InferenceServer
    from unilab_learner.off_policy_loop import LoopParts, OffPolicyLoop
    from unilab_learner.replay.ingress_drain import IngressDrain

    ctx, spec = parts.ctx, parts.spec
    learner = cast("OffPolicyLearner[Any]", parts.learner)  # learner_class made it for this config
    training = ctx.config.training
    slot_segment = open_slot(parts.job, spec, ctx.rank)
    ingress_segment = open_ingress(parts.job, spec, training.replay_ingress_depth, ctx.rank)
    for segment in (slot_segment, ingress_segment):
        parts.stack.callback(segment.close)
    slot, ingress = InferenceSlot(slot_segment), ReplayIngress(ingress_segment)
    ring_collector = parts.collector_bell.ring
    trace = open_child_trace(ctx, parts.stack)
    steps = StepTrace(trace)
    server = InferenceServer(
        slot.learner_port(ring_collector),
        learner.act,
        learner.device,
        check_finite=training.nan_guard.enabled,
    )
    consumer = ingress.consumer(ring_collector)
    if parts.recorder is None:
        drain = IngressDrain(consumer, learner.replay, learner.observe)
        make_timer = PhaseTimer
    else:
        from unilab_learner.timeline import OffPolicyTimeline, TracedDrain

        drain = TracedDrain(consumer, learner.replay, learner.observe)
        drain.timeline = OffPolicyTimeline(
            _timeline(parts, parts.recorder),
            server=server,
            replay=learner.replay,
            occupancy=lambda: consumer.occupancy,
        )
        make_timer = drain.timeline.make_timer
    loop = OffPolicyLoop(
        LoopParts(
            config=ctx.config,
            learner=learner,
            server=server,
            ingress=drain,
            ingress_gauges=ingress.gauges,
            saver=parts.saver,
            logger=parts.logger,
            collector_ring=parts.collector_ring,
            waiter=ctx.waiter([parts.collector]),
            beat=ctx.beat,
            stop_level=ctx.stop_level,
            num_envs=spec.num_envs,
            progress=parts.progress,
            resumed=ctx.config.algo.resume,
            make_timer=make_timer,
            steps=steps,
            segments=ReplayTrace(trace, steps, replay_ticks=learner.replay.num_ticks),
        )
    )

    def sections(last_reports: Records) -> dict[str, Any]:
        return {
            **inference_sections(slot.flight(), last_reports),
            "replay_ingress": dict(ingress.gauges()),
        }

    return Wired(loop=loop, sections=sections, first_tick_ns=lambda: server.first_response_ns)


def _wire_ppo(parts: SessionParts) -> Wired:
    from unilab_learner.on_policy_loop import OnPolicyLoop, OnPolicyParts
    from unilab_learner.ppo_learner import PpoLearner
    from unilab_learner.slot_vec_env import SlotVecEnv

    ctx, learner = parts.ctx, parts.learner
    assert isinstance(learner, PpoLearner)
    segment = open_slot(parts.job, parts.spec, ctx.rank, transitions=True)
    parts.stack.callback(segment.close)
    slot = InferenceSlot(segment)

    def build(env_class: Callable[..., T]) -> T:
        return env_class(
            slot.learner_port(parts.collector_bell.ring),
            parts.spec,
            learner.device,
            waiter=ctx.waiter([parts.collector]),
            beat=ctx.beat,
            policy_version=lambda: parts.progress.iteration,
        )

    if parts.recorder is None:
        env, make_timer = build(SlotVecEnv), PhaseTimer
    else:
        from unilab_learner.ppo_timeline import PpoTimeline, TracedPpoLearner, TracedSlotVecEnv

        assert isinstance(learner, TracedPpoLearner)
        timeline = PpoTimeline(_timeline(parts, parts.recorder))
        env, make_timer = build(TracedSlotVecEnv), timeline.make_timer
        env.timeline = learner.timeline = timeline
    loop = OnPolicyLoop(
        OnPolicyParts(
            config=ctx.config,
            learner=learner,
            env=env,
            saver=parts.saver,
            logger=parts.logger,
            collector_ring=parts.collector_ring,
            beat=ctx.beat,
            stop_level=ctx.stop_level,
            progress=parts.progress,
            make_timer=make_timer,
            steps=StepTrace(open_child_trace(ctx, parts.stack)),
        )
    )
    first_env_steps = parts.progress.env_steps

    def summary() -> dict[str, Any]:
        algo, spec = learner.cfg, parts.spec
        run_env_steps = parts.progress.env_steps - first_env_steps
        reason = f"the {spec.sim} backend reports none"
        return {
            "backend_diagnostics": {"available": False, "unavailable_reason": reason},
            "run_env_steps": run_env_steps,
            "world_size": 1,
            "num_envs_per_rank": algo.num_envs,
            "global_num_envs": algo.num_envs,
            "samples_per_iteration": algo.num_envs * algo.num_steps_per_env,
            "training_throughput_env_steps_per_sec": run_env_steps / loop.elapsed_s,
        }

    return Wired(
        loop=loop,
        sections=lambda reports: inference_sections(slot.flight(), reports),
        summary=summary,
    )


def _wire_appo(parts: SessionParts) -> Wired:
    from unilab_core.config.on_policy import AppoConfig
    from unilab_ipc.policy_snapshot import SnapshotWriter
    from unilab_ipc.rollout_ring import RolloutRing
    from unilab_learner.appo_learner import AppoLearner
    from unilab_learner.async_loop import AsyncLoop, AsyncParts

    ctx, learner = parts.ctx, parts.learner
    algo = ctx.config.algo
    assert isinstance(learner, AppoLearner)
    assert isinstance(algo, AppoConfig)
    ring_segment, snapshot_segment = open_rollouts(parts.job, algo, parts.spec, ctx.rank)
    for segment in (ring_segment, snapshot_segment):
        parts.stack.callback(segment.close)
    ring = RolloutRing(ring_segment)
    ring_collector = parts.collector_bell.ring
    consumer = ring.consumer(ring_collector)
    make_timer = PhaseTimer
    if parts.recorder is not None:
        from unilab_learner.timeline import AsyncTimeline

        make_timer = AsyncTimeline(
            _timeline(parts, parts.recorder),
            occupancy=lambda: consumer.occupancy,
            policy_lag=lambda: learner.pool.newest_lag,
            version=lambda: learner.version,
        ).make_timer
    loop = AsyncLoop(
        AsyncParts(
            config=ctx.config,
            learner=learner,
            ring=consumer,
            snapshot=SnapshotWriter(snapshot_segment, ring_collector),
            num_values=snapshot_segment.dims["P"],
            saver=parts.saver,
            logger=parts.logger,
            collector_ring=parts.collector_ring,
            waiter=ctx.waiter([parts.collector]),
            beat=ctx.beat,
            stop_level=ctx.stop_level,
            progress=parts.progress,
            make_timer=make_timer,
            steps=StepTrace(open_child_trace(ctx, parts.stack)),
        )
    )

    def sections(_last_reports: Records) -> dict[str, Any]:
        pool = learner.pool
        num_unread = loop.release_unread()  # the collector has left: nothing follows
        return {
            "rollout_ring": {
                **ring.gauges(),
                "max_policy_lag": pool.max_lag,
                "stale_rollouts": pool.num_dropped,
                "unread_rollouts": num_unread,
                "rollout_rows": algo.num_envs * algo.steps_per_env,
            }
        }

    return Wired(loop=loop, sections=sections)


def _timeline(parts: SessionParts, recorder: TraceRecorder) -> "LearnerTimeline":
    """The tracks that every algorithm has."""
    from unilab_learner.cuda_lane import cuda_lane
    from unilab_learner.timeline import LearnerTimeline

    training = parts.ctx.config.training
    return LearnerTimeline(
        recorder,
        rank=parts.ctx.rank,
        thread_time=training.trace_thread_time,
        iteration=lambda: parts.progress.iteration,
        cuda=cuda_lane(recorder, parts.learner.device, wanted=training.trace_cuda_events),
    )
