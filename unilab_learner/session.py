"""One learner process between joining the job and leaving it: build, attach, loop, result.

Everything is wired here and nowhere else; the loop gets finished parts. Importing this module
imports torch.
"""

import logging
import os
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from unilab_core.contracts import EnvSpec
from unilab_core.nets.onnx_file import OnnxExportError, OnnxUnavailableError, export_onnx
from unilab_core.nets.policy_file import load_policy
from unilab_core.run.child import ChildContext
from unilab_core.run.job_segments import open_ring
from unilab_core.telemetry.records import RunInfo
from unilab_core.telemetry.tensorboard_sink import TensorBoardSink
from unilab_core.telemetry.timeline.session import open_timeline
from unilab_core.telemetry.training_logger import Sink, TrainingLogger
from unilab_core.telemetry.wandb_sink import WandbSink, init_arguments
from unilab_ipc.errors import PeerTimeout
from unilab_ipc.metric_queue import RingReader, RingWriter
from unilab_ipc.peers import Peer
from unilab_learner.device import resolve_amp, resolve_device
from unilab_learner.learner import Learner, learner_class
from unilab_learner.runtime_facts import learner_facts
from unilab_learner.saver import Progress, Saver
from unilab_learner.session_result import ResultParts, session_result
from unilab_learner.start_times import StartTimes
from unilab_learner.wiring import SessionParts, Wired, wire

COLLECTOR_LEAVES_S = 5.0
"""How long the last records of the collector are waited for."""
LOGGER_CLOSE_S = 2.0
UPLOAD_S = 30.0
"""How long the end of a completed training may upload to W&B; `wandb sync` sends the rest."""

log = logging.getLogger(__name__)


def run_session(ctx: ChildContext, start: StartTimes) -> None:
    """Train one rank of the job."""
    with ExitStack() as stack:
        _set_threads(ctx)
        make_learner = learner_class(ctx.config)
        spec = _wait_env_spec(ctx)
        device = resolve_device(ctx.config.training.device)
        use_amp = resolve_amp(ctx.config.training.use_amp, device)
        log.info("device %s, bf16 autocast %s", device, "on" if use_amp else "off")
        ctx.report_facts(learner_facts(ctx.config, device, use_amp=use_amp))
        ctx.beat.phase("startup/learner_prepare")
        learner = make_learner(ctx.config.algo, spec, device, use_amp=use_amp)
        ctx.beat.advance()
        saver = Saver(
            config=ctx.config,
            spec=spec,
            paths=ctx.run,
            learner=learner,
            seconds_since_start=_clock_since(ctx.launcher),
        )
        progress = _resume(ctx, saver)
        # Before the first action: the collector's curricula go on from here (a resumed run).
        ctx.beat.counts(progress.iteration, progress.env_steps)
        wired, result = _train(ctx, stack, spec, learner, saver, progress)
        startup = start.figures(wired.first_tick_ns())
        ctx.folder.write_json("learner_result.json", {**result, "startup": startup})
        ctx.ring_launcher()


def _set_threads(ctx: ChildContext) -> None:
    if ctx.num_threads is not None:
        torch.set_num_threads(ctx.num_threads)
        torch.set_num_interop_threads(ctx.config.training.torch_threads.learner_num_interop_threads)


def _wait_env_spec(ctx: ChildContext) -> EnvSpec:
    """The launcher renames job.json into place after the collector's env_spec.json."""
    ctx.wait_job()
    data = ctx.folder.read_json("env_spec.json")
    assert data is not None, "job.json before env_spec.json"
    return EnvSpec.from_json(data)


def _resume(ctx: ChildContext, saver: Saver) -> Progress:
    algo = ctx.config.algo
    if not algo.resume:
        return Progress()
    ctx.beat.phase("startup/resume_load")
    return saver.resume(Path(str(algo.load_run)), algo.checkpoint)


def _train(
    ctx: ChildContext,
    stack: ExitStack,
    spec: EnvSpec,
    learner: Learner,
    saver: Saver,
    progress: Progress,
) -> tuple[Wired, dict[str, Any]]:
    job = ctx.wait_job()
    ctx.begin_work()
    ctx.beat.phase("startup/attach")
    own_ring = open_ring(ctx.launch, "learner", ctx.rank)
    collector_ring = open_ring(ctx.launch, "collector", ctx.rank, readonly=True)
    for segment in (own_ring, collector_ring):
        stack.callback(segment.close)
    collector = ctx.wait_peer("collector", ctx.rank)
    stack.callback(collector.close)
    collector_bell = ctx.bell_of("collector", ctx.rank)
    stack.callback(collector_bell.close)
    reader = RingReader(collector_ring)
    first_env_steps = progress.env_steps
    logger = _make_logger(ctx, learner, RingWriter(own_ring), progress)
    for line in saver.skipped:
        logger.note(line, level="warning")
    recorder = open_timeline(
        ctx.config.training, ctx.run.run_dir, ctx.launch["run_id"], "learner", ctx.rank
    )
    if recorder is not None:
        stack.callback(recorder.close)
    wired = wire(
        SessionParts(
            ctx=ctx,
            stack=stack,
            job=job,
            spec=spec,
            learner=learner,
            saver=saver,
            logger=logger,
            collector_ring=reader,
            collector=collector,
            collector_bell=collector_bell,
            progress=progress,
            recorder=recorder,
        )
    )
    loop = wired.loop
    close_s = LOGGER_CLOSE_S
    try:
        reason = loop.run()
        close_s = _close_limit_s(ctx, reason)
        if ctx.config.training.export_onnx:
            logger.note(_export_onnx(ctx))
        ctx.beat.phase("finalize/collector_metrics_drain", awaits="collector")
        _wait_collector_end(ctx, collector)
        # Not in `finally`: a failure is reported with the phase in which it happened.
        ctx.beat.phase("finalize/logger_finish")
    finally:
        logger.close(close_s)
    result = session_result(
        ResultParts(
            reason=reason,
            config=ctx.config,
            spec=spec,
            logger=logger,
            saver=saver,
            transport=wired.sections([*loop.last_reports, *reader.read()]),
            progress=progress,
            first_env_steps=first_env_steps,
            wall_s=loop.elapsed_s,
        )
    )
    return wired, {**wired.summary(), **result}


def _export_onnx(ctx: ChildContext) -> str:
    """Write policy.onnx from policy.pt; what happened, in one line. Never worth failing for."""
    try:
        deviation = export_onnx(load_policy(ctx.run.policy), ctx.run.onnx)
    except OnnxUnavailableError as error:
        log.info("%s", error)
        return str(error)
    except (OnnxExportError, OSError, ValueError) as error:
        log.warning("policy.onnx not written: %s", error)
        return f"policy.onnx not written: {error}"
    return f"saved policy.onnx, {deviation:.1g} from torch"


def _make_logger(
    ctx: ChildContext, learner: Learner, ring: RingWriter, progress: Progress
) -> TrainingLogger:
    training, algo = ctx.config.training, ctx.config.algo
    sinks: list[Sink] = []
    if training.logger == "tensorboard":
        sinks.append(TensorBoardSink(ctx.run.run_dir))
    elif training.logger == "wandb":
        sinks.append(_wandb_sink(ctx))
    is_gpu = learner.device.type != "cpu"
    info = RunInfo(
        job=ctx.job,
        algo=algo.algo,
        task=training.task_name,
        sim=training.sim_backend,
        run_dir=str(ctx.run.run_dir),
        device=str(learner.device),
        num_gpus=1 if is_gpu else 0,
        max_iterations=algo.max_iterations,
        num_envs=algo.num_envs,
        batch_per_rank=learner.rows_per_batch,
        log_interval=training.log_interval,
        first_iteration=progress.iteration,
    )
    return TrainingLogger(info, sinks, ring)


def _wandb_sink(ctx: ChildContext) -> WandbSink:
    arguments = init_arguments(
        ctx.config.training,
        job=ctx.job,
        run_id=f"{ctx.launch['run_id']}-{secrets.token_hex(4)}",
        config=ctx.config.to_dict(),
    )
    return WandbSink(ctx.run.run_dir, arguments)


def _close_limit_s(ctx: ChildContext, reason: str) -> float:
    """An upload gets its time only after a training that nobody stopped."""
    if ctx.config.training.logger == "wandb" and reason in ("completed", "wall_time"):
        return UPLOAD_S
    return LOGGER_CLOSE_S


def _wait_collector_end(ctx: ChildContext, collector: Peer) -> None:
    """Give the collector time to send its last report and leave; go on without it after that."""

    def ended() -> bool | None:
        return True if collector.is_dead() else None

    try:
        ctx.waiter([collector]).wait(ended, timeout_s=COLLECTOR_LEAVES_S, awaits="collector")
    except PeerTimeout as error:
        log.warning("the collector's last report may be missing: %s", error)


def _clock_since(launcher: Peer) -> Callable[[], float]:
    """Seconds since the launcher's process started, to 10 ms: what a user waits for a policy."""
    started_s = launcher.start_ticks / os.sysconf("SC_CLK_TCK")
    # Start ticks count from boot, suspended time included.
    return lambda: time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
