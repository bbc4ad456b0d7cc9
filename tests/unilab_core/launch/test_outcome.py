"""Words and codes for how a process ended."""

import pytest

from unilab_core.launch.outcome import ChildExit, stopped_by


def child_exit(returncode, error=None, rss=0):
    return ChildExit(
        role="learner", rank=0, pid=7, returncode=returncode, phase="training/learner_update",
        error=error, max_rss_bytes=rss,
    )  # fmt: skip


def test_a_clean_exit_is_no_failure():
    assert child_exit(0).failure() is None


@pytest.mark.parametrize(
    ("returncode", "code", "cause"),
    [
        (-9, 10, "died: SIGKILL, peak memory 512 MiB"),
        (-11, 10, "died: SIGSEGV, peak memory 512 MiB"),
        (1, 10, "died: exit code 1"),
        (7, 10, "died: exit code 7"),
        (12, 12, "died: exit code 12"),
        (3, 10, "died: exit code 3"),
        (6, 10, "died: exit code 6"),
    ],
)
def test_only_codes_about_the_run_itself_are_passed_on(returncode, code, cause):
    failure = child_exit(returncode, rss=512 << 20).failure()
    assert (failure.exit_code, failure.cause) == (code, cause)


def test_the_process_own_account_wins_over_its_status():
    error = {
        "exception": "NonFiniteError",
        "message": "reward NaN env 17 step 1204",
        "phase": "training/replay_write",
        "blames": None,
    }
    failure = child_exit(12, error).failure()
    assert failure.line() == (
        "learner-0 (pid 7) failed: NonFiniteError: reward NaN env 17 step 1204 "
        "in phase training/replay_write"
    )


def test_a_message_with_control_characters_stays_one_harmless_line():
    failure = child_exit(1, {"exception": "E", "message": "a\x1b[31m\nb", "blames": None}).failure()
    assert "\x1b" not in failure.line()
    assert "\n" not in failure.line()


def test_a_death_notice_names_whom_it_is_about():
    error = {"exception": "PeerDead", "message": "collector 0 has ended", "blames": "collector"}
    assert child_exit(10, error).failure().blames == "collector"


def test_stops_have_the_exit_codes_of_the_shell():
    assert stopped_by(2, saving=True).exit_code == 130
    assert stopped_by(15, saving=False).reason == "stopped by SIGTERM without saving"
