"""Where the launcher can be struck by `UNILAB_FAULT`; see `unilab_core.run.fault_point`."""

from unilab_core.launch.supervisor import State, Supervisor
from unilab_core.run.fault_point import Place, Sight, entering
from unilab_core.run.faults import Fault

_BOARD = Place(owner="unilab_core.launch.job_files:JobFiles", method="prepare", moment="after")


def places(fault: Fault) -> tuple[Place | Sight, ...]:
    """The places of one fault of the launcher."""
    if fault.action == "enospc":
        return _ENOSPC[fault.phase]
    return _PLACES[fault.phase]


def _is_running(supervisor: Supervisor) -> bool:
    return supervisor.state is State.RUNNING


def _sight(role: str, *phases: str) -> tuple[Sight, ...]:
    return (
        Sight(
            opens=_BOARD,
            board=lambda args, _result: args[0].board(),
            role=role,
            phases=frozenset(phases),
        ),
    )


_PLACES: dict[str, tuple[Place | Sight, ...]] = {
    # Named, locked and allocated, but not ready: what an attaching process must tell apart.
    "P0": (Place(owner="unilab_ipc.memory", method="_publish"),),
    # The child runs, and nobody knows of it yet.
    "P1": (Place(owner="unilab_core.launch.processes", method="_identify"),),
    "P2": (Place(owner="unilab_core.launch.job_files:JobFiles", method="write_job_record"),),
    "P3": (entering("training/supervise"),),
    "P4a": (
        Place(
            owner="unilab_core.launch.supervisor:Supervisor",
            method="time_passed",
            when=_is_running,
        ),
    ),
    "P4b": _sight("collector", "training/learner_action_wait", "training/rollout_wait"),
    "P4c": _sight("collector", "training/rollout", "training/replay_write"),
    "P4d": _sight("learner", "training/weight_publish", "training/inference_response"),
    "P4e": _sight("collector", "training/replay_write"),
    "P4f": _sight("collector", "training/metrics_publish"),
    "P5": _sight("learner", "training/checkpoint", "finalize/checkpoint"),
    "P6": (Place(owner="unilab_ipc.memory:Segment", method="unlink"),),
    "P7": _sight("learner", "startup/resume_load"),
}
_ENOSPC: dict[str, tuple[Place, ...]] = {
    # Where the kernel itself would refuse, so that our own conversion of the error is tested too.
    "P0": (Place(owner="os", method="posix_fallocate"),),
    "P6": (Place(owner="unilab_core.launch.ending", method="write_json_atomic"),),
}
