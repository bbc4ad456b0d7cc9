"""A learner without torch: it counts iterations, writes records and a checkpoint.

UNILAB_FAKE_LEARNER: run (default), raise, refuse, slow_import, no_save, slow_save. Ends after
max_iterations.
"""

import contextlib
import os
import time

from unilab_core.run.child import child_session
from unilab_core.run.failures import CheckpointError, FinalSaveError
from unilab_core.run.job_segments import open_ring
from unilab_core.telemetry.records import IterationReport, RunInfo
from unilab_ipc.errors import PeerTimeout
from unilab_ipc.metric_queue import RingWriter

MODE = os.environ.get("UNILAB_FAKE_LEARNER", "run")
ITERATION_S = 0.02


def main():
    with child_session("learner") as ctx:
        if MODE == "refuse":
            raise CheckpointError("checkpoint_00000003.pt: damaged")
        if MODE == "slow_import":
            ctx.report_facts({"pid": os.getpid()})
            sum(range(10**10))  # minutes in C, where no signal handler of Python's runs
        ctx.wait_job()
        ctx.begin_work()
        iteration = learn(ctx)
        save(ctx, iteration)


def learn(ctx):
    algo, training = ctx.config.algo, ctx.config.training
    ring = RingWriter(open_ring(ctx.launch, "learner"))
    info = RunInfo(
        job=ctx.job, algo=algo.algo, task=training.task_name, sim="mujoco",
        run_dir=str(ctx.run.run_dir), device="cpu", num_gpus=0,
        max_iterations=algo.max_iterations, num_envs=algo.num_envs, batch_per_rank=8,
        trainable_ns=time.monotonic_ns(),
    )  # fmt: skip
    ring.write(info.record(time.monotonic_ns()))
    waiter = ctx.waiter([ctx.wait_peer("collector")])
    ctx.beat.phase("training/learner_update")
    iteration = 0
    while iteration < algo.max_iterations and ctx.stop_level() == 0:
        with contextlib.suppress(PeerTimeout):
            waiter.wait(lambda: None, timeout_s=ITERATION_S, awaits="collector")
        iteration += 1
        if iteration == 10 and MODE == "raise":
            raise RuntimeError("tensors do not match")
        ctx.beat.counts(iteration, iteration * algo.num_envs)
        ctx.beat.advance()
        report = IterationReport(
            t_ns=time.monotonic_ns(), iteration=iteration, env_steps=iteration * algo.num_envs,
            wall_ms=20.0, reward_mean=1.5, steps_per_s=100.0,
        )  # fmt: skip
        ring.write(report.record())
    return iteration


def save(ctx, iteration):
    if ctx.stop_level() < 2:
        ctx.beat.phase("finalize/checkpoint")
        if MODE == "no_save":
            raise FinalSaveError("No space left on device")
        if MODE == "slow_save":
            time.sleep(1000)
        (ctx.run.checkpoints / f"checkpoint_{iteration:08d}.pt").write_bytes(b"weights")
    ctx.folder.write_json(
        "learner_result.json",
        {"completed_iterations": iteration, "final_mean_reward": 1.5, "best_mean_reward": 2.0},
    )
    ctx.folder.write_json("closed.json", {})
    ctx.bell_of("collector").ring()


if __name__ == "__main__":
    main()
