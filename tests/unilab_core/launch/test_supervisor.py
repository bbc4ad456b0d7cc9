"""Named histories of events: who is told what, and how the run ends.

The clock is set by hand, children are names, the driver writes down what it was asked to do.
"""

import signal

import pytest

from unilab_core.config.training import TrainingConfig
from unilab_core.launch.outcome import ChildExit
from unilab_core.launch.supervisor import Child, State, Supervisor
from unilab_ipc.clock import ManualClock
from unilab_ipc.errors import NoSpace
from unilab_ipc.heartbeat import RoleStatus

SECOND = 1_000_000_000
PIDS = {"collector": 11, "learner": 12}
TRAINING = TrainingConfig(task_name="walk", sim_backend="mujoco")


class RecordingDriver:
    def __init__(self):
        self.calls = []
        self.said = []
        self.announce_error = None
        self.state = "S"
        self.tracers = {}

    def tracer(self, role, rank):
        return self.tracers.get(role, 0)

    def announce(self):
        if self.announce_error is not None:
            raise self.announce_error
        self.calls.append("announce")

    def request_stop(self, level):
        self.calls.append(f"stop {level}")

    def send_signal(self, role, rank, signum):
        self.calls.append(f"{signal.Signals(signum).name} {role}")

    def stacks(self, role, rank):
        return f"stacks of {role}"

    def process_state(self, role, rank):
        return self.state

    def say(self, text):
        self.said.append(text)


class History:
    """A job of one collector and one learner, and short words for what happens to it."""

    def __init__(self):
        self.clock = ManualClock()
        self.driver = RecordingDriver()
        children = [Child(role=role, rank=0, pid=pid) for role, pid in PIDS.items()]
        self.job = Supervisor(children, TRAINING, self.driver, self.clock)
        self.rows = {role: self.row(role, phase="startup/begin") for role in PIDS}

    @staticmethod
    def row(role, *, phase="training/env_step", progress=0, awaits=None, signum=0):
        return RoleStatus(
            role=role,
            rank=0,
            pid=PIDS[role],
            start_ticks=1,
            phase=phase,
            awaits=awaits,
            progress=progress,
            beat_ns=0,
            iteration=0,
            env_steps=0,
            signal=signum,
            state="alive",
        )

    def running(self):
        self.job.spec_ready()
        self.sees(
            self.row("collector"), self.row("learner", phase="training/learner_update", progress=1)
        )
        self.driver.calls.clear()
        return self

    def sees(self, *rows):
        for row in rows:
            self.rows[row.role] = row
        self.job.board(list(self.rows.values()))

    def waits(self, seconds, *, step=1.0):
        """Time goes by in looks of at most `step` seconds."""
        for _ in range(round(seconds / step)):
            self.clock.advance_ns(round(step * SECOND))
            self.job.board(list(self.rows.values()))
            self.job.time_passed()

    def ends(self, role, returncode, *, phase="training/env_step", error=None):
        self.job.exits([self.exit(role, returncode, phase=phase, error=error)])

    @staticmethod
    def exit(role, returncode, *, phase="training/env_step", error=None):
        return ChildExit(
            role=role, rank=0, pid=PIDS[role], returncode=returncode, phase=phase, error=error
        )


@pytest.fixture
def history():
    return History()


def error_record(exception, message, *, phase="training/env_step", blames=None):
    return {"exception": exception, "message": message, "phase": phase, "blames": blames}


def peer_dead(role):
    return error_record("PeerDead", f"{role} 0 has ended", blames=role)


def test_a_debugger_on_a_role_stops_every_clock_and_detaching_starts_them_again(history):
    history.running()
    history.sees(history.row("learner", phase="training/wait_for_rollout", awaits="collector"))
    history.driver.tracers["collector"] = 77
    history.waits(500)
    assert history.job.state is State.RUNNING
    assert history.driver.said == ["collector-0 has a debugger (pid 77): no time limits"]
    history.driver.tracers.clear()
    history.waits(50)
    assert history.job.state is State.RUNNING
    history.waits(25)
    assert history.job.state is State.STOPPING
    assert history.driver.said[-1] == "stacks of collector"


def test_ctrl_c_waits_for_a_role_under_a_debugger_and_twice_does_not(history):
    history.running()
    history.driver.tracers["learner"] = 77
    history.job.signalled(signal.SIGINT)
    history.waits(1000)
    assert history.driver.calls == ["stop 1"]
    history.job.signalled(signal.SIGINT)
    assert "stop 2" in history.driver.calls
    history.waits(10)
    assert "SIGKILL learner" in history.driver.calls


def test_a_termination_signal_keeps_its_grace_under_a_debugger(history):
    history.running()
    history.driver.tracers["learner"] = 77
    history.job.signalled(signal.SIGTERM)
    history.waits(9)
    assert "SIGKILL learner" in history.driver.calls


def test_training_completes(history):
    history.running()
    history.ends("learner", 0)
    assert history.driver.calls == ["stop 1"]
    history.ends("collector", 0)
    outcome = history.job.outcome
    assert (outcome.status, outcome.exit_code) == ("completed", 0)


def test_collector_leaves_first_after_the_closing_answer(history):
    history.running()
    history.ends("collector", 0)
    assert history.job.state is State.RUNNING
    history.ends("learner", 0)
    assert history.job.done
    assert history.job.outcome.status == "completed"


def test_collector_stays_after_a_completed_training_and_is_made_to_leave(history):
    history.running()
    history.ends("learner", 0)
    history.waits(3)
    assert history.driver.calls[-2:] == ["stop 2", "SIGTERM collector"]
    history.waits(3)
    assert history.driver.calls[-1] == "SIGKILL collector"
    history.ends("collector", -9)
    assert history.job.outcome.exit_code == 0


def test_learner_dies_first(history):
    history.running()
    history.ends("learner", -9, phase="training/learner_update")
    assert history.driver.calls == ["stop 2", "SIGTERM collector"]
    history.ends("collector", 10, error=peer_dead("learner"))
    outcome = history.job.outcome
    assert outcome.exit_code == 10
    assert outcome.reason == "learner-0 (pid 12) died: SIGKILL in phase training/learner_update"


def test_collector_raises_and_its_learner_notices_in_the_same_look(history):
    history.running()
    cause = error_record("EnvError", "step failed: ValueError: bad\nmore")
    history.job.exits(
        [
            history.exit("learner", 10, error=peer_dead("collector")),
            history.exit("collector", 11, error=cause),
        ]
    )
    outcome = history.job.outcome
    assert outcome.exit_code == 11
    assert outcome.reason == (
        "collector-0 (pid 11) failed: EnvError: step failed: ValueError: bad "
        "in phase training/env_step"
    )


def test_an_unknown_exit_code_counts_as_a_death(history):
    history.running()
    history.ends("learner", 7)
    history.ends("collector", 10, error=peer_dead("learner"))
    assert history.job.outcome.exit_code == 10
    assert "died: exit code 7" in history.job.outcome.reason


def test_collector_leaves_early_with_code_zero(history):
    history.running()
    history.ends("collector", 0)
    history.ends("learner", 10, error=peer_dead("collector"))
    assert history.job.outcome.exit_code == 10
    assert "collector left before the end" in history.job.outcome.reason


def test_learner_ends_before_training_began(history):
    history.ends("learner", 0, phase="startup/begin")
    history.ends("collector", -15)
    assert history.job.outcome.exit_code == 10
    assert not history.job.outcome.trained


def test_learner_refuses_a_damaged_checkpoint(history):
    history.running()
    history.ends("learner", 5, error=error_record("CheckpointError", "model_3.pt: damaged"))
    history.ends("collector", 10, error=peer_dead("learner"))
    assert history.job.outcome.exit_code == 5
    assert "model_3.pt: damaged" in history.job.outcome.reason


def test_shared_memory_too_small(history):
    history.driver.announce_error = NoSpace(1000, 10)
    history.job.spec_ready()
    history.ends("learner", -15)
    history.ends("collector", -15)
    outcome = history.job.outcome
    assert outcome.exit_code == 4
    assert "1000" in outcome.reason
    assert "10 bytes free" in outcome.reason
    assert not outcome.trained


def test_child_ignores_term(history):
    history.running()
    history.ends("learner", -11)
    history.waits(2)
    assert history.driver.calls == ["stop 2", "SIGTERM collector"]
    history.waits(1)
    assert history.driver.calls[-1] == "SIGKILL collector"
    history.ends("collector", -9)
    assert history.job.outcome.exit_code == 10


def test_child_cannot_be_reaped(history):
    history.running()
    history.ends("learner", -11)
    history.waits(5)
    assert history.job.done
    assert history.job.outcome.later == (
        "could not be ended, stuck in the kernel: collector-0 (pid 11)",
    )


def test_ctrl_c_once(history):
    history.running()
    history.job.signalled(signal.SIGINT)
    assert history.driver.calls == ["stop 1"]
    history.ends("learner", 0)
    history.ends("collector", 0)
    outcome = history.job.outcome
    assert (outcome.exit_code, outcome.reason) == (130, "stopped by SIGINT")


def test_a_collector_that_stays_after_the_save_is_made_to_leave(history):
    history.running()
    history.job.signalled(signal.SIGINT)
    history.ends("learner", 0)
    history.waits(6)
    assert history.driver.calls == [
        "stop 1", "stop 2", "SIGTERM collector", "SIGKILL collector"
    ]  # fmt: skip
    history.ends("collector", -9)
    assert history.job.outcome.reason == "stopped by SIGINT"


def test_ctrl_c_twice(history):
    history.running()
    history.job.signalled(signal.SIGINT)
    history.job.signalled(signal.SIGINT)
    assert history.driver.calls == ["stop 1", "stop 2", "SIGTERM learner", "SIGTERM collector"]
    history.waits(2)
    assert history.driver.calls[-2:] == ["SIGKILL learner", "SIGKILL collector"]
    history.job.exits([history.exit("learner", -9), history.exit("collector", -9)])
    outcome = history.job.outcome
    assert outcome.exit_code == 130
    assert outcome.reason == "stopped by SIGINT without saving"
    assert not outcome.keep_names


def test_ctrl_c_three_times(history):
    history.running()
    for _ in range(3):
        history.job.signalled(signal.SIGINT)
    assert history.driver.calls[-2:] == ["SIGKILL learner", "SIGKILL collector"]
    assert history.job.done
    assert history.job.outcome.exit_code == 130
    assert history.job.outcome.keep_names


def test_ctrl_c_during_startup(history):
    history.job.signalled(signal.SIGINT)
    assert history.driver.calls == ["stop 2", "SIGTERM learner", "SIGTERM collector"]
    history.ends("learner", -15)
    history.ends("collector", -15)
    assert history.job.outcome.exit_code == 130
    assert history.job.outcome.reason == "stopped by SIGINT without saving"


def test_ctrl_c_while_the_learner_still_loads_has_nothing_to_save(history):
    history.job.spec_ready()
    history.sees(history.row("learner", phase="startup/learner_prepare"))
    history.job.signalled(signal.SIGINT)
    assert "stop 2" in history.driver.calls


def test_ctrl_c_while_a_failure_is_being_cleaned_up(history):
    history.running()
    history.ends("learner", -9)
    history.job.signalled(signal.SIGINT)
    assert history.driver.calls[-1] == "SIGKILL collector"
    assert not history.job.done
    history.ends("collector", -9)
    assert history.job.outcome.exit_code == 10
    assert not history.job.outcome.keep_names


def test_ctrl_c_after_the_last_iteration_keeps_the_completed_training(history):
    history.running()
    history.ends("learner", 0)
    history.job.signalled(signal.SIGINT)
    history.ends("collector", -15)
    assert history.job.outcome.exit_code == 0


def test_a_long_save_after_ctrl_c_may_take_its_time_while_something_moves(history):
    history.running()
    history.job.signalled(signal.SIGINT)
    for count in range(2, 6):
        history.sees(history.row("learner", phase="finalize/checkpoint", progress=count))
        history.waits(50)
    assert history.driver.calls == ["stop 1"]
    history.waits(11)
    assert "stop 2" in history.driver.calls


def test_sigterm_saves_within_the_grace(history):
    history.running()
    history.job.signalled(signal.SIGTERM)
    history.waits(4)
    assert history.driver.calls == ["stop 1"]
    history.ends("learner", 0)
    history.ends("collector", 0)
    assert (history.job.outcome.exit_code, history.job.outcome.reason) == (
        143,
        "stopped by SIGTERM",
    )


def test_sigterm_skips_a_save_that_does_not_fit_and_says_so(history):
    history.running()
    history.job.signalled(signal.SIGTERM)
    history.waits(5)
    assert "stop 2" in history.driver.calls
    assert any("without it" in text for text in history.driver.said)
    history.waits(3)
    assert history.driver.calls[-1] == "SIGKILL collector"
    history.job.exits([history.exit("learner", -9), history.exit("collector", -9)])
    assert history.job.outcome.reason == "stopped by SIGTERM without saving"
    assert history.job.outcome.exit_code == 143


def test_double_sigterm(history):
    history.running()
    history.job.signalled(signal.SIGTERM)
    history.job.signalled(signal.SIGTERM)
    history.ends("learner", 0)
    history.ends("collector", 0)
    assert history.job.outcome.reason == "stopped by SIGTERM without saving"
    assert history.job.outcome.exit_code == 143


def test_the_terminal_goes_away(history):
    history.running()
    history.job.signalled(signal.SIGHUP)
    history.ends("learner", 0)
    history.ends("collector", 0)
    assert history.job.outcome.exit_code == 129


def test_final_save_fails(history):
    history.running()
    history.job.signalled(signal.SIGINT)
    history.ends("learner", 14, error=error_record("FinalSaveError", "disk full"))
    history.ends("collector", 0)
    assert history.job.outcome.exit_code == 14
    assert "disk full" in history.job.outcome.reason


def test_a_crash_while_stopping_is_listed_after_the_first_cause(history):
    history.running()
    history.job.signalled(signal.SIGINT)
    history.ends("learner", -11, phase="finalize/checkpoint")
    history.ends("collector", 10, error=peer_dead("learner"))
    assert history.job.outcome.exit_code == 130
    assert history.job.outcome.later == (
        "learner-0 (pid 12) died: SIGSEGV in phase finalize/checkpoint",
    )


def test_a_signal_to_a_child_alone_stops_the_job(history):
    history.running()
    history.sees(history.row("collector", signum=signal.SIGTERM))
    assert history.driver.calls == ["stop 1"]
    assert history.driver.said[0] == "collector-0 received SIGTERM"
    history.sees(history.row("collector", signum=signal.SIGTERM))
    assert history.driver.calls == ["stop 1"]
    history.ends("learner", 0)
    history.ends("collector", 0)
    assert history.job.outcome.exit_code == 143


def test_collector_hangs(history):
    history.running()
    history.sees(
        history.row("learner", phase="training/wait_for_inference_request", awaits="collector")
    )
    history.waits(10)
    assert history.driver.said == [
        "warning: collector-0 (pid 11) no progress for 10 s (learner-0 waits for it) "
        "in phase training/env_step"
    ]
    history.waits(50)
    assert history.driver.said[1] == "stacks of collector"
    assert history.driver.calls == [
        "stop 2",
        "SIGTERM learner",
        "SIGTERM collector",
        "SIGKILL collector",
    ]
    history.waits(3)
    history.job.exits([history.exit("learner", 0), history.exit("collector", -9)])
    outcome = history.job.outcome
    assert outcome.exit_code == 13
    assert outcome.failure.role == "collector"
    assert "no progress for 60 s" in outcome.reason


def test_a_stopped_process_is_named_as_stopped(history):
    history.running()
    history.driver.state = "T"
    history.sees(history.row("collector", awaits="learner", phase="training/learner_action_wait"))
    history.waits(10)
    assert "learner-0" in history.driver.said[0]
    assert "stopped, state T" in history.driver.said[0]
    history.waits(50)
    assert not any("stacks" in line for line in history.driver.said), "it cannot print any"
    assert history.driver.calls[-1] == "SIGKILL learner"


def test_a_collector_that_never_takes_the_job_up_is_the_one_who_hangs(history):
    history.sees(
        history.row("collector", phase="startup/wait_job", awaits="launcher"),
        history.row("learner", phase="startup/wait_job", awaits="launcher"),
    )
    history.job.spec_ready()
    history.sees(history.row("learner", phase="startup/attach", awaits="collector"))
    history.waits(599)
    assert history.job.state is State.RUNNING
    history.waits(2)
    assert history.driver.calls[-1] == "SIGKILL collector"


def test_a_role_that_goes_on_is_said_to(history):
    history.running()
    history.sees(history.row("learner", phase="training/learner_update", progress=1))
    history.waits(12)
    history.sees(history.row("collector", progress=5))
    assert "collector-0 (pid 11) goes on after 12 s" in history.driver.said
    assert history.job.state is State.RUNNING


def test_the_launchers_own_pause_is_no_standstill_of_others(history):
    history.running()
    history.waits(600, step=300)
    assert history.driver.calls == []
    assert history.driver.said == []


def test_starting_may_take_longer_than_training(history):
    history.waits(599)
    assert history.driver.calls == []
    history.waits(2)
    assert history.driver.calls[0] == "stop 2"
    assert history.job.state is State.STOPPING
