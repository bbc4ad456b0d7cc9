"""The sweep: every phase that a role passes, every action that strikes there, what must follow.

row   what                                  exit code          times counted from
F01   collector dies (kill)                 10                 the fault
F02   learner dies (kill)                   10                 the fault
F04   launcher dies (kill, segv, exit)      the signal's       the fault
F07   a child dies otherwise                10                 the fault
F08   stopped, continued after a while      0                  -
F09   stopped for ever                      13                 the hang limit
F10   stands still                          13                 the hang limit
F16   no shared memory at the start         4                  the fault
F18   disk full at a checkpoint             0; 14 at the last  -
F19   disk full for metrics, the summary    0                  -
F24   a NaN                                 12                 the fault
F25   the environment raises                11                 the fault
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from unilab_core.run.exit_codes import ExitCode
from unilab_core.run.fault_point import EXIT_CODE
from unilab_core.run.faults import PHASES, SIGHTED, SIGHTED_ACTIONS, Fault, actions_at
from unilab_core.tools.faults.tiny_job import ENDLESS, SHORT_LIMITS

PAUSE_S = 5.0
"""How long a stopped process of F08 stays stopped."""
SEGMENTS = {"sac": 5, "ppo": 4, "appo": 5}
"""Shared segments that the launcher creates."""

ALGOS = tuple(SEGMENTS)
CHILDREN = ("collector", "learner")
_DEADLY = ("kill", "segv", "exit", "raise")
_TELLS = {
    "kill": "SIGKILL",
    "segv": "SIGSEGV",
    "exit": f"exit code {EXIT_CODE}",
    "raise": "InjectedFault",
}


@dataclass(kw_only=True, slots=True, frozen=True)
class Case:
    """One fault in one job, and what has to follow."""

    algo: str
    fault: Fault
    row: str
    """Row of the acceptance table."""
    exit_code: int
    says: tuple[str, ...] = ()
    """What the launcher's output has to name."""
    settings: tuple[str, ...] = ()
    continue_after_s: float | None = None
    """Send SIGCONT this long after the stop."""

    @property
    def name(self) -> str:
        """For people."""
        tail = "" if self.continue_after_s is None else f", continued after {PAUSE_S:g} s"
        if self.exit_code == ExitCode.FINAL_SAVE_FAILED:
            tail = ", at the last save"
        return f"{self.algo} {self.fault}{tail}"

    @property
    def resumes(self) -> bool:
        """Whether the job starts from the checkpoint of another one."""
        return self.fault.phase == "P7"

    @property
    def launcher_dies(self) -> bool:
        """Whether nobody is left to clean up."""
        return self.fault.role == "launcher" and self.fault.action in ("kill", "segv", "exit")


def sweep(algos: Sequence[str], seed: int) -> list[Case]:
    """Every case, in a random order so that a sweep cut short has seen a bit of everything."""
    rng = random.Random(seed)
    cases = [case for algo in algos for case in _cases(algo, rng)]
    rng.shuffle(cases)
    return cases


def quick(algos: Sequence[str], seed: int) -> list[Case]:
    """A few cases of each algorithm that cover most rows; what a quick check can afford."""
    wanted = {
        "sac": ("collector:P4e:kill", "launcher:P4a:kill", "learner:P4a:nan", "collector:P4a:stop"),
        "ppo": ("learner:P4b:kill", "collector:P4a:raise", "learner:P5:enospc"),
        "appo": ("learner:P4d:kill", "collector:P4c:sleep", "launcher:P0:enospc"),
    }
    chosen: list[Case] = []
    for case in sweep(algos, seed):
        fault = case.fault
        key = f"{fault.role}:{fault.phase}:{fault.action}"
        known = any(_kind(other) == _kind(case) for other in chosen)
        paused = case.continue_after_s is not None
        if key in wanted.get(case.algo, ()) and not known and not paused:
            chosen.append(case)
    return chosen


def _kind(case: Case) -> tuple[str, str, str, str]:
    return case.algo, case.fault.role, case.fault.phase, case.fault.action


def _cases(algo: str, rng: random.Random) -> Iterator[Case]:
    for phase in PHASES:
        for role in CHILDREN:
            for action in actions_at(role, phase, algo):
                yield from _child_cases(algo, role, phase, action, rng)
        for action in actions_at("launcher", phase, algo):
            yield from _launcher_cases(algo, phase, action, rng)


def _child_cases(
    algo: str, role: str, phase: str, action: str, rng: random.Random
) -> Iterator[Case]:
    n = (
        1
        if phase in ("P0", "P1", "P2", "P6", "P7") or _once(algo, role, phase)
        else rng.randint(1, 3)
    )
    fault = Fault(role=role, phase=phase, n=n, action=action)
    if _says_nothing_new(phase, action):
        return
    name = f"{role}-0 (pid"
    ends = ExitCode.PROCESS_DIED
    case = Case(algo=algo, fault=fault, row="F07", exit_code=int(ends), says=(name, "in phase"))
    if phase in SIGHTED[role]:
        case = replace(case, settings=_endless(case))
    if action in _DEADLY:
        yield _deadly(case)
    elif action in ("stop", "sleep"):
        row = "F09" if action == "stop" else "F10"
        yield replace(
            case,
            row=row,
            exit_code=int(ExitCode.HANG),
            says=(name, "no progress for", "in phase"),
            settings=(*case.settings, *SHORT_LIMITS),
        )
        if action == "stop" and phase in ("P2", "P4a", "P4b", "P4d", "P4e"):
            yield replace(case, row="F08", exit_code=0, says=(), continue_after_s=PAUSE_S)
    elif action == "nan":
        says = ("NonFiniteError", "in phase")  # whoever meets it first: it crosses the rings
        yield replace(case, row="F24", exit_code=int(ExitCode.NON_FINITE), says=says)
    else:
        yield from _full_disk(case)


def _says_nothing_new(phase: str, action: str) -> bool:
    """Left out for time: the signals differ only while data moves, the two hangs only after it.

    Telemetry of ours does not raise; the death of a process inside it is another case.
    """
    before = phase in ("P0", "P2", "P3", "P7")
    return (
        (action == "segv" and not phase.startswith("P4"))
        or (action == "sleep" and before)
        or (action == "raise" and phase == "P4f")
    )


def _once(algo: str, role: str, phase: str) -> bool:
    """Phases that are passed a single time in one job."""
    return phase == "P3" and (role == "collector" or algo in ("ppo", "appo"))


def _deadly(case: Case) -> Case:
    fault = case.fault
    tells = _TELLS[fault.action]
    if fault.action == "raise" and fault.phase == "P1":
        tells = "exit code 1"  # it has not joined the job yet, so it cannot tell
    case = replace(case, says=(*case.says, tells))
    if fault.action == "kill":
        return replace(case, row="F01" if fault.role == "collector" else "F02")
    if fault.action == "raise" and fault.role == "collector" and fault.phase in ("P3", "P4a"):
        return replace(case, row="F25", exit_code=int(ExitCode.ENV_EXCEPTION))
    return case


def _full_disk(case: Case) -> Iterator[Case]:
    if case.fault.phase == "P5":
        first = replace(case.fault, n=1)
        yield replace(case, row="F18", fault=first, exit_code=0, says=("not written",))
        last = int(ExitCode.FINAL_SAVE_FAILED)
        only = (f"algo.save_interval={ENDLESS}",)
        yield replace(case, row="F18", fault=first, exit_code=last, settings=only)
    else:
        settings = ("training.logger=tensorboard",)
        yield replace(case, row="F19", exit_code=0, says=(), settings=settings)


def _launcher_cases(algo: str, phase: str, action: str, rng: random.Random) -> Iterator[Case]:
    passages = {"P0": SEGMENTS[algo], "P1": 2, "P6": 2}.get(phase, 1)
    for n in (
        range(1, passages + 1) if action in ("kill", "enospc") else (rng.randint(1, passages),)
    ):
        fault = Fault(role="launcher", phase=phase, n=n, action=action)
        case = Case(algo=algo, fault=fault, row="F04", exit_code=0)
        settings = _endless(case) if phase in SIGHTED["launcher"] else ()
        match action:
            case "kill":
                yield replace(case, exit_code=-signal.SIGKILL, settings=settings)
            case "segv":
                yield replace(case, exit_code=-signal.SIGSEGV, settings=settings)
            case "exit":
                yield replace(case, exit_code=EXIT_CODE, settings=settings)
            case "raise" if phase != "P6":
                died = int(ExitCode.PROCESS_DIED)
                yield replace(case, row="F07", exit_code=died, says=(_TELLS["raise"],))
            case "stop" if phase not in SIGHTED["launcher"]:
                yield replace(case, row="F08", continue_after_s=PAUSE_S)
            case "sleep" if phase in ("P2", "P4a"):
                pause = replace(fault, seconds=PAUSE_S)
                yield replace(case, row="F08", fault=pause)
            case "enospc" if phase == "P0":
                no_space = int(ExitCode.NO_SPACE)
                yield replace(case, row="F16", exit_code=no_space, says=("bytes",))
            case "enospc" if n == 1:
                yield replace(case, row="F19", says=("cannot write the summary",))


def _endless(case: Case) -> tuple[str, ...]:
    """What watches for another role's phase may need a while to see it."""
    assert case.fault.action in SIGHTED_ACTIONS
    return (f"algo.max_iterations={ENDLESS}",)
