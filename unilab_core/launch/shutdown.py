"""`runtime_manifest.shutdown`: who ended the run, in which phase, and what was left.

    completed          normal_completion      learner
    a signal           external_cancellation  external
    a hang             timeout/stale_tick     the role that stood still
    a child failed     <role>_failure         that role
    the launcher       unknown_failure        launcher

`backend_worker_failure` is part of the vocabulary for backends that step in processes of their
own; ours step in the collector, whose failure it then is. The mapping has no contract in manifest
version 1: consumers may show it, and the soak tool checks the few fields that it names.
"""

import signal
from collections.abc import Mapping
from typing import Any

from unilab_core.launch.job_files import JobFiles
from unilab_core.launch.outcome import ChildExit, Outcome
from unilab_core.run.exit_codes import ExitCode, describe_status
from unilab_ipc.heartbeat import RoleStatus

MAX_MESSAGE_CHARS = 16_000

_SLOT_COUNTERS = ("request_seq", "response_seq", "consumed_seq", "policy_version", "closed")


def shutdown_record(
    files: JobFiles, outcome: Outcome, transport: Mapping[str, Any]
) -> dict[str, Any]:
    """The mapping; `transport` holds the manifest's sections as they were read at the end."""
    board = files.board()
    learner = board.row("learner", 0)
    ring = _slot_counters(files)
    rollouts = transport.get("rollout_ring", {})
    classification, owner = classify(outcome)
    return {
        "classification": classification,
        "owner": owner,
        "phase": _phase(outcome, learner),
        "iteration": learner.iteration,
        # The newest moment at which both sides met: a request, or a finished rollout.
        "coordination_tick": ring["request_seq"] if ring else rollouts.get("published_sequence"),
        "inference_epoch": ring["policy_version"] if ring else None,
        "cause": outcome.reason,
        "exception": exception_of(outcome),
        "learner_coordination": {"phase": learner.phase, "progress": learner.progress},
        "inference_ring": ring,
        "replay_ingress": transport.get("replay_ingress"),
        "rollout_ring": transport.get("rollout_ring"),
        "collector": _process(outcome, "collector"),
        "learner": _process(outcome, "learner"),
        "cleanup": {
            "errors": [cleanup_error("ShutdownFinding", text) for text in outcome.later],
        },
    }


def classify(outcome: Outcome) -> tuple[str, str]:
    """Classification and owner."""
    failure = outcome.failure
    if failure is None:
        if outcome.status == "completed":
            return "normal_completion", "learner"
        return "external_cancellation", "external"
    if failure.exit_code == ExitCode.HANG:
        return "timeout/stale_tick", failure.role
    if failure.role in ("learner", "collector"):
        return f"{failure.role}_failure", failure.role
    return "unknown_failure", failure.role


def exception_of(outcome: Outcome) -> dict[str, str] | None:
    """The exception that ended the run, as the failing process wrote it down; else None."""
    failure = outcome.failure
    if failure is None:
        return None
    for child_exit in outcome.exits:
        if (child_exit.role, child_exit.rank) != (failure.role, failure.rank):
            continue
        error = child_exit.error
        if error is not None and child_exit.returncode >= 0:
            kind, message = str(error.get("exception")), str(error.get("message"))
            return {"type": kind, "message": message[:MAX_MESSAGE_CHARS]}
    return None


def error_type(outcome: Outcome) -> str | None:
    """One word for a failure: the exception's class, the signal, `Hang`, or `exit code 7`."""
    failure = outcome.failure
    if failure is None:
        return None
    exception = exception_of(outcome)
    if exception is not None:
        return exception["type"]
    if failure.exit_code == ExitCode.HANG:
        return "Hang"
    for child_exit in outcome.exits:
        if (child_exit.role, child_exit.rank) == (failure.role, failure.rank):
            return describe_status(child_exit.returncode)
    return ExitCode(failure.exit_code).name


def cleanup_error(kind: str, message: str) -> dict[str, str]:
    """One entry of `cleanup.errors`."""
    return {"type": kind, "message": message[:MAX_MESSAGE_CHARS]}


def _phase(outcome: Outcome, learner: RoleStatus) -> str:
    return learner.phase if outcome.failure is None else outcome.failure.phase


def _process(outcome: Outcome, role: str) -> dict[str, Any]:
    found: ChildExit | None = next((e for e in outcome.exits if e.role == role), None)
    if found is None:
        return {"alive": True, "exitcode": None, "signal": None, "signal_name": None}
    signum = -found.returncode if found.returncode < 0 else None
    return {
        "alive": False,
        "exitcode": found.returncode,
        "signal": signum,
        "signal_name": None if signum is None else _signal_name(signum),
        "max_rss_bytes": found.max_rss_bytes,
    }


def _signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def _slot_counters(files: JobFiles) -> dict[str, int] | None:
    slot = files.find_segment("inference_slot")
    if slot is None:
        return None
    return {name: int(slot.view[name][()]) for name in _SLOT_COUNTERS}
