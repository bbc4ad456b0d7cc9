"""``python -m unilab_collector --job J --rank R``: the collector process from start to end.

1. Build the environment, once.
2. Write ``env_spec.json`` into the job folder and ring the launcher, which sizes the segments from
   it (``--spec-only`` ends here: that is what ``unilab-launch --dry-run`` needs).
3. Wait for ``job.json``, attach, run the loop of the algorithm.
4. Leave: this process created no shared object and unlinks none.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from unilab_collector.fault_places import places
from unilab_collector.guarded_env import GuardedEnv
from unilab_collector.nan_dumps import NanDumps
from unilab_collector.wiring import CollectorParts, wire
from unilab_core.config.errors import ConfigError
from unilab_core.contracts import Env
from unilab_core.envs import make_env
from unilab_core.run.child import ChildContext, child_parser, child_session
from unilab_core.run.failures import EnvError
from unilab_core.run.fault_child import arm_child
from unilab_core.run.job_segments import open_ring
from unilab_core.telemetry.timeline.session import open_timeline
from unilab_ipc.metric_queue import RingWriter

SEED_STRIDE = 1_000_003
"""Distance between the seeds of two ranks: a prime far above any number of environments."""


def main() -> None:
    """Run one collector; leaves with its exit code."""
    parser = child_parser("collector")
    parser.add_argument(
        "--spec-only", action="store_true", help="write env_spec.json and leave (for --dry-run)"
    )
    args = parser.parse_args()
    arm_child("collector", args.job, lambda fault, job: places(fault, job.algo, job.task))
    with child_session("collector", args) as ctx, ExitStack() as stack:
        env = _build_env(ctx)
        stack.callback(env.close)
        ctx.folder.write_json("env_spec.json", env.spec.to_json())
        ctx.ring_launcher()
        if not args.spec_only:
            _collect(ctx, env, stack)


def _build_env(ctx: ChildContext) -> Env:
    ctx.beat.phase("startup/env_build")
    training = ctx.config.training
    seed, num_threads = ctx.config.algo.seed + SEED_STRIDE * ctx.rank, ctx.num_threads or 1
    requested = training.torch_threads.collector_num_threads
    ctx.report_facts(
        {
            "pid": os.getpid(),
            "threads": {"physics_num_threads": num_threads, "requested": requested},
            "seeds": {"environment": seed},
        }
    )
    try:
        env = make_env(
            training.task_name,
            training.sim_backend,
            ctx.config.env,
            num_envs=ctx.config.algo.num_envs,
            seed=seed,
            num_threads=num_threads,
        )
    except ConfigError:
        raise
    except Exception as error:
        raise EnvError(f"constructor: {type(error).__name__}: {error}") from error
    ctx.beat.advance()
    return env


def _collect(ctx: ChildContext, env: Env, stack: ExitStack) -> None:
    job = ctx.wait_job()
    ctx.beat.phase("startup/attach")
    ring = open_ring(ctx.launch, "collector", ctx.rank)
    stack.callback(ring.close)
    learner = ctx.wait_peer("learner", ctx.rank)
    stack.callback(learner.close)
    learner_bell = ctx.bell_of("learner", ctx.rank)
    stack.callback(learner_bell.close)
    recorder = open_timeline(
        ctx.config.training, ctx.run.run_dir, ctx.launch["run_id"], "collector", ctx.rank
    )
    if recorder is not None:
        stack.callback(recorder.close)
    loop = wire(
        CollectorParts(
            ctx=ctx,
            stack=stack,
            job=job,
            env=_guard(ctx, env),
            ring=RingWriter(ring),
            learner=learner,
            ring_learner=learner_bell.ring,
            recorder=recorder,
        )
    )
    ctx.last_seqs = loop.seqs
    ctx.begin_work()  # not before: APPO's collector has only now imported torch
    loop.run()
    ctx.beat.phase("finalize/env_close")


def _guard(ctx: ChildContext, env: Env) -> GuardedEnv:
    """The environment behind its NaN guard, with dumps into the run directory."""
    guard = ctx.config.training.nan_guard
    dumps = NanDumps(
        Path(guard.output_dir) if guard.output_dir is not None else ctx.run.nan_guard,
        spec=env.spec,
        env_config=ctx.config.env.to_dict(),
        max_envs=guard.max_envs_to_dump,
        rank=ctx.rank,
    )
    return GuardedEnv(
        env, guard, dumps=dumps, max_exceptions=ctx.config.training.max_env_exceptions
    )


if __name__ == "__main__":
    main()
