"""The life of a job as a state machine: events in, driver calls out.

    starting --spec ready--> running --learner exits 0--> stopping(completed) --all gone--> done
       |                        |
       | signal                 | signal: 1st finish and save, 2nd no save, 3rd at once
       | child fails            | child fails, or stands still too long
       v                        v
    stopping(no save) ------> stopping(...) --deadline: SIGTERM, then SIGKILL--> done

The first cause decides the outcome and is kept; what follows is listed. A worked example, the
collector killed while training:

    exits([collector -9])   -> failure "collector-0 (pid 7) died: SIGKILL in phase ..."
                               driver.request_stop(2), SIGTERM to the learner
    exits([learner 10])     -> follows from the first cause; all gone -> done, exit code 10

Deadlines after the request to stop (seconds):

    cause               leave without saving     SIGKILL
    failure, level 2    at once                  grace_s (2 after the second interrupt)
    SIGINT              60 without progress      + grace_s
    SIGTERM, SIGHUP     stop_grace_s - grace_s   stop_grace_s
    completed           grace_s                  + grace_s
"""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from unilab_core.config.training import TrainingConfig
from unilab_core.launch.hang import Finding, HangLimits, HangWatch
from unilab_core.launch.outcome import ChildExit, Failure, Outcome, completed, failed, stopped_by
from unilab_core.run.exit_codes import ExitCode
from unilab_ipc.clock import Clock
from unilab_ipc.errors import IpcError, NoSpace
from unilab_ipc.heartbeat import STOP_NOW, STOP_SAVE, RoleStatus

SECOND_INTERRUPT_S = 2.0
REAP_S = 2.0
"""After SIGKILL a process is gone within this, or sits in the kernel and cannot be waited for."""


class Driver(Protocol):
    """What the supervisor can do to the world."""

    def announce(self) -> None:
        """Create the segments that need the environment's sizes, and make the job attachable."""
        ...

    def request_stop(self, level: int) -> None:
        """Store the stop level on the board and ring every bell."""
        ...

    def send_signal(self, role: str, rank: int, signum: int) -> None:
        """Signal one child; a child that has ended is no error."""
        ...

    def stacks(self, role: str, rank: int) -> str:
        """Python stacks of a child, or why there are none."""
        ...

    def process_state(self, role: str, rank: int) -> str | None:
        """The kernel's state letter of a child."""
        ...

    def tracer(self, role: str, rank: int) -> int:
        """Pid of the debugger attached to a child, 0 where there is none."""
        ...

    def say(self, text: str) -> None:
        """A line for the person who watches."""
        ...


class State(Enum):
    """Where the job is."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"


@dataclass(slots=True)
class Child:
    """One child as the supervisor sees it, in start order."""

    role: str
    rank: int
    pid: int
    gone: bool = False


@dataclass(slots=True)
class _Deadlines:
    """Monotonic times of the next steps while stopping; None = never."""

    no_save_ns: int | None = None
    kill_ns: int | None = None
    give_up_ns: int | None = None


class Supervisor:
    """Feed it events; `done` says when to stop feeding, `outcome` how it ended."""

    def __init__(
        self,
        children: Sequence[Child],
        training: TrainingConfig,
        driver: Driver,
        clock: Clock,
        *,
        debugging: bool = False,
    ) -> None:
        """`debugging`: a role runs under a debugger from the start, so nobody is ever late."""
        self._debugging = debugging
        self._traced: set[tuple[str, int]] = set()
        self._children = list(children)
        self._training = training
        self._driver = driver
        self._clock = clock
        limits = HangLimits(
            warn_after_s=training.warn_after_s,
            hang_after_s=training.hang_after_s,
            startup_hang_after_s=training.startup_hang_after_s,
        )
        self._watch = HangWatch(limits, clock)
        self._state = State.STARTING
        self._attachable = False
        self._trainable = False
        self._stepped = False
        self._clean_exits: set[str] = set()
        self._outcome: Outcome | None = None
        self._level = 0
        self._interrupts = 0
        self._stop_signum = 0
        self._deadlines = _Deadlines()
        self._later: list[str] = []
        self._exits: list[ChildExit] = []
        self._reported: dict[tuple[str, int], int] = {}
        self._progress: tuple[int, ...] = ()

    @property
    def state(self) -> State:
        """Where the job is."""
        return self._state

    @property
    def done(self) -> bool:
        """Nothing more to wait for."""
        return self._state is State.DONE

    @property
    def outcome(self) -> Outcome:
        """How the job ended; only once `done`."""
        assert self._outcome is not None
        return replace(
            self._outcome,
            later=tuple(self._later),
            exits=tuple(self._exits),
            trained=self._stepped,
        )

    # ---- events, in the order in which a run meets them

    def spec_ready(self) -> None:
        """The collector has described its environment."""
        if self._state is not State.STARTING:
            return
        try:
            self._driver.announce()
        except NoSpace as error:
            self._fail(self._own_failure(ExitCode.NO_SPACE, str(error), "startup/create_segments"))
        except (IpcError, ValueError) as error:
            self._fail(
                self._own_failure(ExitCode.INCOMPATIBLE, str(error), "startup/create_segments")
            )
        else:
            self._attachable = True
            self._watch.launcher_ready()
            self._state = State.RUNNING

    def exits(self, exits: Sequence[ChildExit]) -> None:
        """Children have ended; of those seen in one look, any may be the cause."""
        self._exits.extend(exits)
        for child_exit in exits:
            for child in self._children:
                if (child.role, child.rank) == (child_exit.role, child_exit.rank):
                    child.gone = True
        # A peer that reports somebody's death is never the first cause.
        for child_exit in sorted(exits, key=_is_consequence):
            self._one_exit(child_exit)
        if all(child.gone for child in self._children):
            self._finish()

    def signalled(self, signum: int) -> None:
        """The launcher received SIGINT, SIGTERM or SIGHUP."""
        if self.done:
            return
        self._interrupts += 1
        if self._interrupts >= 3:
            self._kill_all()
            first = self._outcome or stopped_by(signum, saving=False)
            self._outcome = replace(first, keep_names=True)
            self._state = State.DONE
        elif self._state is not State.STOPPING:
            self._first_interrupt(signum)
        elif self._level < STOP_NOW:
            self._second_interrupt(signum)
        else:  # they are leaving already: no more patience, but still a clean end
            self._kill_all()

    def board(self, rows: Sequence[RoleStatus]) -> None:
        """The heartbeat board at this moment."""
        alive = {(child.role, child.rank) for child in self._children if not child.gone}
        living = [row for row in rows if (row.role, row.rank) in alive]
        if self._state is State.STOPPING:
            self._extend_save(living)
            return
        self._stepped = self._stepped or any(row.env_steps or row.iteration for row in rows)
        learners = [row for row in living if row.role == "learner"]
        self._trainable = any(not row.phase.startswith("startup/") for row in learners)
        for row in living:
            if row.signal and self._reported.get((row.role, row.rank)) != row.signal:
                self._reported[row.role, row.rank] = row.signal
                self._driver.say(f"{row.role}-{row.rank} received {_signal_name(row.signal)}")
                self.signalled(row.signal)
                return
        findings = self._watch.look(living)
        if findings and not self._debugging and not self._pardoned(living):
            for finding in findings:
                self._found(finding)

    def time_passed(self) -> None:
        """Check the deadlines of a stop."""
        now_ns = self._clock.now_ns()
        deadlines = self._deadlines
        if self._level == STOP_SAVE and deadlines.no_save_ns is not None and self._is_patient():
            return  # somebody steps through the last iteration; a second interrupt ends the wait
        if deadlines.no_save_ns is not None and now_ns >= deadlines.no_save_ns:
            deadlines.no_save_ns = None
            unsaved = any(child.role == "learner" for child in self._living())
            if self._stop_signum and self._level < STOP_NOW and unsaved:
                self._driver.say("no time left for the last checkpoint: leaving without it")
                self._outcome = stopped_by(self._stop_signum, saving=False)
            self._stop(STOP_NOW)
        if deadlines.kill_ns is not None and now_ns >= deadlines.kill_ns:
            deadlines.kill_ns = None
            self._kill_all()
            deadlines.give_up_ns = now_ns + _ns(REAP_S)
        if deadlines.give_up_ns is not None and now_ns >= deadlines.give_up_ns:
            stuck = ", ".join(f"{c.role}-{c.rank} (pid {c.pid})" for c in self._living())
            self._later.append(f"could not be ended, stuck in the kernel: {stuck}")
            self._finish()

    # ---- what they lead to

    def _one_exit(self, child_exit: ChildExit) -> None:
        failure = child_exit.failure()
        if failure is None:
            self._clean_exits.add(child_exit.role)
        if self._state is State.STOPPING or self.done:
            self._exit_while_stopping(child_exit, failure)
        elif failure is not None and failure.blames in self._clean_exits:
            self._fail(replace(failure, cause=f"failed: {failure.blames} left before the end"))
        elif failure is not None:
            self._fail(failure)
        elif not self._attachable:
            self._fail(_ended_early(child_exit))
        elif child_exit.role == "learner":
            self._outcome = completed()
            self._begin_stop(STOP_SAVE, no_save_s=self._training.grace_s)
        # A collector may leave first, after the learner's closing answer: the learner decides.

    def _exit_while_stopping(self, child_exit: ChildExit, failure: Failure | None) -> None:
        if child_exit.role == "learner" and self._level < STOP_NOW:
            # Saved or not, nothing is left to wait for: a collector leaves within the grace.
            self._deadlines.no_save_ns = self._clock.now_ns() + _ns(self._training.grace_s)
        if failure is None or self._level >= STOP_NOW:
            return  # asked for, one way or another
        if failure.exit_code == ExitCode.FINAL_SAVE_FAILED:
            self._outcome = failed(failure)
        elif failure.blames is None:
            self._later.append(failure.line())

    def _fail(self, failure: Failure) -> None:
        self._outcome = failed(failure)
        self._begin_stop(STOP_NOW, kill_s=self._training.grace_s)

    def _first_interrupt(self, signum: int) -> None:
        training = self._training
        self._stop_signum = signum
        if not self._trainable:  # nothing has been learned that could be saved
            self._outcome = stopped_by(signum, saving=False)
            self._begin_stop(STOP_NOW, kill_s=training.grace_s)
            return
        self._outcome = stopped_by(signum, saving=True)
        if signum == signal.SIGINT:
            self._driver.say("stopping: finishing the iteration and saving (again: without saving)")
            self._begin_stop(STOP_SAVE, no_save_s=training.hang_after_s)
        else:
            no_save_s = training.stop_grace_s - training.grace_s
            self._begin_stop(STOP_SAVE, no_save_s=no_save_s)

    def _second_interrupt(self, signum: int) -> None:
        if self._outcome is None or self._outcome.status == "stopped":
            first = self._stop_signum or signum
            self._outcome = stopped_by(first, saving=False)
        self._driver.say("leaving without saving (again: at once)")
        self._begin_stop(STOP_NOW, kill_s=SECOND_INTERRUPT_S)

    def _found(self, finding: Finding) -> None:
        name = f"{finding.role}-{finding.rank}"
        pid = next(
            c.pid for c in self._children if (c.role, c.rank) == (finding.role, finding.rank)
        )
        if finding.kind == "resumed":
            self._driver.say(f"{name} (pid {pid}) goes on after {finding.still_s:.0f} s")
            return
        stopped = self._driver.process_state(finding.role, finding.rank) in ("T", "t")
        cause = _standstill(finding, stopped=stopped)
        if finding.kind == "warn":
            self._driver.say(f"warning: {name} (pid {pid}) {cause} in phase {finding.phase}")
            return
        if not stopped:  # a stopped process cannot print its stacks
            self._driver.say(self._driver.stacks(finding.role, finding.rank))
        self._fail(
            Failure(
                exit_code=int(ExitCode.HANG),
                role=finding.role,
                rank=finding.rank,
                pid=pid,
                cause=cause,
                phase=finding.phase,
            )
        )
        # It answers nothing: waiting for it to leave would only cost the grace.
        self._driver.send_signal(finding.role, finding.rank, signal.SIGKILL)

    def _pardoned(self, living: list[RoleStatus]) -> bool:
        """Whether a debugger holds a role: then nobody's time counts, also not those that wait."""
        keys = [(row.role, row.rank) for row in living]
        traced = {key: pid for key in keys if (pid := self._driver.tracer(*key))}
        if not traced:
            self._traced.clear()
            return False
        for (role, rank), pid in traced.items():
            if (role, rank) not in self._traced:
                self._driver.say(f"{role}-{rank} has a debugger (pid {pid}): no time limits")
        self._traced = set(traced)
        self._watch.pardon(keys)
        return True

    def _is_patient(self) -> bool:
        """While debugging, a stop that people asked for (or the end of training) may take long."""
        if self._stop_signum not in (0, signal.SIGINT):
            return False  # the batch system's grace is not ours to extend
        living = self._living()
        return self._debugging or any(self._driver.tracer(c.role, c.rank) for c in living)

    # ---- stopping

    def _begin_stop(
        self, level: int, *, no_save_s: float | None = None, kill_s: float | None = None
    ) -> None:
        now_ns = self._clock.now_ns()
        self._state = State.STOPPING
        self._deadlines = _Deadlines(
            no_save_ns=None if no_save_s is None else now_ns + _ns(no_save_s),
            kill_ns=None if kill_s is None else now_ns + _ns(kill_s),
        )
        self._stop(level)

    def _stop(self, level: int) -> None:
        """Raise the level; from level 2 on nobody has a reason to stay."""
        self._level = max(self._level, level)
        self._driver.request_stop(self._level)
        if self._level < STOP_NOW:
            return
        for child in reversed(self._living()):
            self._driver.send_signal(child.role, child.rank, signal.SIGTERM)
        if self._deadlines.kill_ns is None:
            self._deadlines.kill_ns = self._clock.now_ns() + _ns(self._training.grace_s)

    def _extend_save(self, living: list[RoleStatus]) -> None:
        """After Ctrl-C a long save may take its time, as long as something moves."""
        progress = tuple(row.progress for row in living)
        moved = progress != self._progress
        self._progress = progress
        saving = any(row.role == "learner" for row in living)
        if moved and saving and self._level == STOP_SAVE and self._stop_signum == signal.SIGINT:
            self._deadlines.no_save_ns = self._clock.now_ns() + _ns(self._training.hang_after_s)

    def _kill_all(self) -> None:
        for child in reversed(self._living()):
            self._driver.send_signal(child.role, child.rank, signal.SIGKILL)

    def _living(self) -> list[Child]:
        return [child for child in self._children if not child.gone]

    def _finish(self) -> None:
        if self._outcome is None:  # every child left with code 0, and no learner was among them
            cause = "lost every process before the end of training"
            self._outcome = failed(
                self._own_failure(ExitCode.PROCESS_DIED, cause, "training/supervise")
            )
        self._state = State.DONE

    def _own_failure(self, code: ExitCode, cause: str, phase: str) -> Failure:
        return Failure(
            exit_code=int(code),
            role="launcher",
            rank=0,
            pid=os.getpid(),
            cause=cause,
            phase=phase,
        )


def _is_consequence(child_exit: ChildExit) -> bool:
    failure = child_exit.failure()
    return failure is not None and failure.blames is not None


def _ended_early(child_exit: ChildExit) -> Failure:
    return Failure(
        exit_code=int(ExitCode.PROCESS_DIED),
        role=child_exit.role,
        rank=child_exit.rank,
        pid=child_exit.pid,
        cause="ended before training began",
        phase=child_exit.phase,
    )


def _signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def _standstill(finding: Finding, *, stopped: bool) -> str:
    notes = ["stopped, state T"] if stopped else []
    if finding.deadlock:
        notes.append(f"waits in a circle with {', '.join(finding.waiting)}")
    elif finding.waiting:
        notes.append(f"{', '.join(finding.waiting)} waits for it")
    detail = f" ({'; '.join(notes)})" if notes else ""
    return f"no progress for {finding.still_s:.0f} s{detail}"


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
