"""Standstill, chains of waits, and the watchdog's own pauses; times by hand."""

import pytest

from unilab_core.launch.hang import HangLimits, HangWatch
from unilab_ipc.clock import ManualClock
from unilab_ipc.heartbeat import RoleStatus

LIMITS = HangLimits(warn_after_s=10.0, hang_after_s=60.0, startup_hang_after_s=600.0)


def row(role, *, progress=0, phase="training/env_step", awaits=None):
    return RoleStatus(
        role=role, rank=0, pid=1, start_ticks=1, phase=phase, awaits=awaits, progress=progress,
        beat_ns=0, iteration=0, env_steps=0, signal=0, state="alive",
    )  # fmt: skip


class Looks:
    """A watch that is looked through once per second."""

    def __init__(self):
        self.clock = ManualClock()
        self.watch = HangWatch(LIMITS, self.clock)

    def for_seconds(self, seconds, *rows, step_s=1.0):
        found = []
        for _ in range(round(seconds / step_s)):
            found += self.watch.look(list(rows))
            self.clock.advance_s(step_s)
        found += self.watch.look(list(rows))
        return [(f.kind, f.role) for f in found]


@pytest.fixture
def looks():
    return Looks()


def test_a_standstill_is_warned_about_once_and_then_a_hang(looks):
    still = row("collector")
    assert looks.for_seconds(9, still) == []
    assert looks.for_seconds(1, still) == [("warn", "collector")]
    assert looks.for_seconds(49, still) == []
    assert looks.for_seconds(1, still)[0] == ("hang", "collector")


def test_progress_or_another_phase_is_a_sign_of_life(looks):
    looks.for_seconds(9, row("collector", progress=1))
    looks.for_seconds(9, row("collector", progress=2))
    assert looks.for_seconds(9, row("collector", progress=2, phase="training/replay_write")) == []


def test_who_waits_for_a_busy_role_is_left_alone(looks):
    waiting = row("collector", awaits="learner", phase="training/learner_action_wait")
    for progress in range(10):
        assert looks.for_seconds(9, waiting, row("learner", progress=progress)) == []


def test_the_end_of_the_chain_is_reported_and_not_the_one_who_waits(looks):
    waiting = row("learner", awaits="collector", phase="training/wait_for_inference_request")
    found = looks.for_seconds(60, waiting, row("collector"))
    assert set(found) == {("warn", "collector"), ("hang", "collector")}


def test_who_still_waits_for_a_role_that_has_left_hangs_itself(looks):
    waiting = row("learner", awaits="collector", phase="finalize/collector_metrics_drain")
    looks.for_seconds(5, row("collector"), row("learner"))
    assert looks.for_seconds(59, waiting) == [("warn", "learner")]
    assert looks.for_seconds(1, waiting)[0] == ("hang", "learner")


def test_two_roles_that_wait_for_each_other_are_a_deadlock(looks):
    rows = (row("collector", awaits="learner"), row("learner", awaits="collector"))
    looks.for_seconds(60, *rows)
    findings = looks.watch.look(list(rows))
    assert findings
    assert all(finding.kind == "hang" and finding.deadlock for finding in findings)


def test_who_waits_for_the_launcher_does_not_hang(looks):
    assert looks.for_seconds(700, row("learner", awaits="launcher", phase="startup/wait_job")) == []


def test_before_the_job_is_attachable_the_launcher_itself_waits_for_the_collector(looks):
    waiting = row("learner", awaits="launcher", phase="startup/wait_job")
    found = looks.for_seconds(600, waiting, row("collector", phase="startup/env_build"))
    assert set(found) == {("warn", "collector"), ("hang", "collector")}


def test_a_collector_that_waits_while_segments_are_made_does_not_hang(looks):
    rows = [row(role, awaits="launcher", phase="startup/wait_job") for role in ("collector",)]
    assert looks.for_seconds(700, *rows) == []


def test_who_still_waits_for_the_launcher_when_the_job_is_attachable_hangs(looks):
    stopped = row("collector", awaits="launcher", phase="startup/wait_job")
    assert looks.for_seconds(700, stopped) == []
    looks.watch.launcher_ready()
    assert looks.for_seconds(599, stopped) == [("warn", "collector")]
    assert ("hang", "collector") in looks.for_seconds(1, stopped)


def test_starting_and_compiling_have_a_limit_of_their_own(looks):
    compiling = row("learner", phase="startup/compile")
    found = looks.for_seconds(599, compiling)
    assert found == [("warn", "learner")]
    assert ("hang", "learner") in looks.for_seconds(1, compiling)


def test_time_in_which_the_launcher_did_not_run_does_not_count(looks):
    still = row("collector")
    assert looks.for_seconds(6000, still, step_s=1000.0) == []
    assert looks.for_seconds(1, still) == [("warn", "collector")]


def test_a_role_that_was_warned_about_is_said_to_go_on(looks):
    looks.for_seconds(12, row("collector"))
    findings = looks.watch.look([row("collector", progress=1)])
    assert [(f.kind, f.still_s) for f in findings] == [("resumed", 12.0)]
    assert looks.for_seconds(9, row("collector", progress=1)) == []
