"""Exit codes of exceptions, and their wording."""

import pytest

from unilab_core.run.exit_codes import ExitCode, describe_status, exit_code_of_signal
from unilab_core.run.failures import (
    CheckpointError,
    EnvError,
    FinalSaveError,
    NonFiniteError,
    exit_code_of,
)
from unilab_ipc.errors import (
    Closed,
    JobMissing,
    NoSpace,
    PeerDead,
    SegmentForeign,
    SegmentMismatch,
    SegmentMissing,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EnvError("x"), 11),
        (NonFiniteError("reward", 17, 1204), 12),
        (CheckpointError("x"), 5),
        (FinalSaveError("x"), 14),
        (SegmentMismatch("a", "b"), 5),
        (SegmentForeign("a", "b"), 5),
        (SegmentMissing("/x"), 5),
        (PeerDead("learner", 0, 1), 10),
        (NoSpace(2, 1), 4),
        (JobMissing("x"), 6),
        (Closed("stop"), 0),
        (RuntimeError("x"), 1),
        (KeyError("x"), 1),
    ],
)
def test_each_failure_has_its_exit_code(error, code):
    assert exit_code_of(error) == code


def test_a_value_that_is_not_finite_names_source_environment_and_step():
    assert str(NonFiniteError("reward", 17, 1204)) == "reward NaN env 17 step 1204"
    assert str(NonFiniteError("loss", step=3, kind="inf")) == "loss inf step 3"


def test_signals_follow_the_convention_of_the_shell():
    assert [exit_code_of_signal(number) for number in (1, 2, 15)] == [129, 130, 143]


def test_a_status_reads_as_a_signal_name_or_a_code():
    assert describe_status(-9) == "SIGKILL"
    assert describe_status(-11) == "SIGSEGV"
    assert describe_status(7) == "exit code 7"


def test_the_published_codes_never_move():
    assert {code.name: int(code) for code in ExitCode} == {
        "OK": 0,
        "USAGE": 2,
        "NAME_IN_USE": 3,
        "NO_SPACE": 4,
        "INCOMPATIBLE": 5,
        "NOTHING": 6,
        "PROCESS_DIED": 10,
        "ENV_EXCEPTION": 11,
        "NON_FINITE": 12,
        "HANG": 13,
        "FINAL_SAVE_FAILED": 14,
    }
