"""`UNILAB_FAULT` in a child process: read before anything else, armed where it names this role."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unilab_core.config.errors import ConfigError
from unilab_core.run.exit_codes import ExitCode
from unilab_core.run.fault_point import Place, Sight, arm
from unilab_core.run.faults import Fault, fault_of
from unilab_ipc.errors import IpcError
from unilab_ipc.registry import JobFolder


@dataclass(kw_only=True, slots=True, frozen=True)
class StruckJob:
    """What decides where a phase takes place."""

    algo: str
    task: str


def arm_child(
    role: str, job: str, places: Callable[[Fault, StruckJob], Sequence[Place | Sight]]
) -> None:
    """Arm the fault of this role, if there is one.

    Args:
        role: collector or learner.
        job: name of the job.
        places: the places of a fault in a job.

    Raises:
        SystemExit: with code 2 where the variable holds no fault; the reason is one line.
    """
    try:
        fault = fault_of(role, os.environ)
    except ConfigError as error:
        print(f"{role}: {error}", file=sys.stderr, flush=True)
        raise SystemExit(int(ExitCode.USAGE)) from None
    if fault is None:
        return
    try:
        launch = JobFolder.open(job).read_json("launch.json") or {}
    except (IpcError, ValueError, OSError):
        return  # no such job: the session that follows says so
    struck = StruckJob(algo=str(launch.get("algo")), task=str(launch.get("task")))
    arm(fault, places(fault, struck))
