"""A collector without an environment: it writes a spec, then counts ticks until it is told.

UNILAB_FAKE_COLLECTOR: run (default), raise, nan, exit7, hang, deaf, no_spec.
"""

import os
import signal
import time

from unilab_core.contracts import EnvSpec
from unilab_core.run.child import child_parser, child_session
from unilab_core.run.failures import EnvError, NonFiniteError
from unilab_core.run.job_segments import open_slot
from unilab_ipc.errors import PeerTimeout

MODE = os.environ.get("UNILAB_FAKE_COLLECTOR", "run")
TICK_S = 0.02


def spec(ctx):
    return EnvSpec(
        task=ctx.config.training.task_name,
        sim="mujoco",
        num_envs=ctx.config.algo.num_envs,
        obs_width=int(os.environ.get("UNILAB_FAKE_OBS_WIDTH", "3")),
        critic_obs_width=4,
        action_width=2,
        action_low=(-1.0, -1.0),
        action_high=(1.0, 1.0),
        obs_terms=(("gyro", 3),),
        critic_obs_terms=(("gyro", 3), ("height", 1)),
        reward_terms=("alive",),
        termination_terms=("time_out",),
        log_keys=("reward/alive",),
        ctrl_dt_s=0.02,
        max_episode_steps=50,
        backend_device=None,
    )


def main():
    parser = child_parser("collector")
    parser.add_argument("--spec-only", action="store_true")
    args = parser.parse_args()
    with child_session("collector", args) as ctx:
        if MODE == "no_spec":
            ctx.beat.phase("startup/env_build")
            time.sleep(1000)
        built = spec(ctx)
        ctx.folder.write_json("env_spec.json", built.to_json())
        ctx.ring_launcher()
        if not args.spec_only:
            collect(ctx, built)


def collect(ctx, built):
    slot = open_slot(ctx.wait_job(), built)
    waiter = ctx.waiter([ctx.wait_peer("learner")])
    ctx.begin_work()
    ctx.beat.phase("training/env_step")
    for tick in range(1, 1_000_000):
        try:
            waiter.wait(
                lambda: ctx.folder.read_json("closed.json"), timeout_s=TICK_S, awaits="learner"
            )
            break
        except PeerTimeout:
            pass
        if tick == 10:
            misbehave()
        ctx.beat.counts(0, tick * built.num_envs)
        ctx.beat.advance()
    slot.close()


def misbehave():
    if MODE == "raise":
        raise EnvError("step failed: ValueError: bad joint\nsecond line")
    if MODE == "nan":
        raise NonFiniteError("reward", 17, 1204)
    if MODE == "exit7":
        os._exit(7)
    if MODE == "hang":
        time.sleep(1000)
    if MODE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)


if __name__ == "__main__":
    main()
