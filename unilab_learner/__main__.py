"""`python -m unilab_learner --job J --rank R`: the learner process from start to end.

1. Join the job, then import torch (in `session`, hence inside the function): that takes seconds,
   in which the collector builds its environment.
2. Build networks and replay from `env_spec.json`, load a checkpoint when resuming.
3. Wait for `job.json`, attach, run the loop.
4. Write `learner_result.json` into the job folder, from which the launcher makes the summary.
"""

import time

from unilab_core.run.child import child_parser, child_session
from unilab_core.run.fault_child import arm_child
from unilab_learner.fault_places import places
from unilab_learner.start_times import StartTimes


def main() -> None:
    """Run one learner; leaves with its exit code."""
    args = child_parser("learner").parse_args()
    arm_child("learner", args.job, lambda fault, job: places(fault, job.algo))
    with child_session("learner", args) as ctx:
        ctx.beat.phase("startup/begin")
        started_ns = time.monotonic_ns()
        import torch  # noqa: F401 - timed by itself: all else follows it

        imported_ns = time.monotonic_ns()
        from unilab_learner.session import run_session

        run_session(ctx, StartTimes(import_started_ns=started_ns, imported_ns=imported_ns))


if __name__ == "__main__":
    main()
