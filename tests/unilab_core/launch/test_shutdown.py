"""Who ended a run, in the words of the shutdown record."""

import signal
from dataclasses import replace

import pytest

from unilab_core.launch.outcome import ChildExit, Failure, completed, failed, stopped_by
from unilab_core.launch.shutdown import MAX_MESSAGE_CHARS, classify, error_type, exception_of


def failure(role, exit_code=10):
    return Failure(exit_code=exit_code, role=role, rank=0, pid=7, cause="x", phase="training/x")


def child_exit(role, returncode, error=None):
    return ChildExit(
        role=role, rank=0, pid=7, returncode=returncode, phase="training/x", error=error
    )


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (completed(), ("normal_completion", "learner")),
        (stopped_by(signal.SIGINT, saving=True), ("external_cancellation", "external")),
        (stopped_by(signal.SIGTERM, saving=False), ("external_cancellation", "external")),
        (failed(failure("learner")), ("learner_failure", "learner")),
        (failed(failure("collector", 12)), ("collector_failure", "collector")),
        (failed(failure("collector", 13)), ("timeout/stale_tick", "collector")),
        (failed(failure("learner", 13)), ("timeout/stale_tick", "learner")),
        (failed(failure("launcher", 4)), ("unknown_failure", "launcher")),
    ],
)
def test_classification_and_owner_follow_from_the_first_cause(outcome, expected):
    assert classify(outcome) == expected


def test_the_exception_is_the_failing_roles_own_and_bounded():
    error = {"exception": "ValueError", "message": "m" * 20_000}
    other = {"exception": "PeerDead", "message": "collector died"}
    outcome = replace(
        failed(failure("collector")),
        exits=(child_exit("learner", 10, other), child_exit("collector", 1, error)),
    )
    exception = exception_of(outcome)
    assert exception["type"] == "ValueError"
    assert len(exception["message"]) == MAX_MESSAGE_CHARS
    assert error_type(outcome) == "ValueError"


def test_an_error_file_of_an_earlier_exception_does_not_explain_a_signal():
    error = {"exception": "ValueError", "message": "handled"}
    outcome = replace(
        failed(failure("collector")), exits=(child_exit("collector", -signal.SIGKILL, error),)
    )
    assert exception_of(outcome) is None
    assert error_type(outcome) == "SIGKILL"


def test_a_run_that_did_not_fail_has_neither():
    assert exception_of(completed()) is None
    assert error_type(stopped_by(signal.SIGINT, saving=True)) is None


def test_a_failure_of_the_launcher_is_named_by_its_exit_code():
    assert error_type(failed(failure("launcher", 4))) == "NO_SPACE"
    assert error_type(failed(failure("learner", 13))) == "Hang"
