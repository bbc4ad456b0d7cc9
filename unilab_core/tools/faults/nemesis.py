"""``unilab-bench nemesis``: a random process, a random moment, a random blow; then a normal start.

    start an endless job -> wait for a random time -> kill, segfault or stop one role, or all
    -> the job ends by itself within its bound -> start again under the same name: exit code 0
    -> nothing is left of either run

Everything random comes from the seed and the number of the round; where a blow lands depends on the
machine all the same, which is the point.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from unilab_core.run.exit_codes import ExitCode
from unilab_core.tools.bench.report import BenchReport
from unilab_core.tools.faults.audit import end_processes, leftovers, processes_of, signal_process
from unilab_core.tools.faults.side_by_side import run_side_by_side
from unilab_core.tools.faults.tiny_job import ENDLESS, SHORT_LIMITS, TinyJob
from unilab_core.tools.soak.sampling import command_of

VICTIMS = ("launcher", "collector", "learner", "everybody")
BLOWS = ("kill", "segv", "stop", "pause")
LATEST_S = 6.0
"""A blow lands within this time of the start: in the start-up, the training, or between."""
PAUSE_S = 1.0
ALONE = "1 processes"
"""Phase in which the launcher has not started a child yet."""
END_BOUND_S = 90.0
START_BOUND_S = 120.0
LOOK_S = 0.02


@dataclass(kw_only=True, slots=True)
class Round:
    """What was done in one round, and what became of it."""

    index: int
    algo: str
    victim: str
    blow: str
    at_s: float
    phase: str = ""
    """Of the struck job: `before` it could be found, or how many roles ran."""
    exit_code: int | None = None
    ended_s: float | None = None
    restart_code: int | None = None
    reclaimed: bool = False
    violations: list[str] = field(default_factory=list)
    output: str = ""


def run(
    *, rounds: int, seed: int, algos: Sequence[str], jobs: int, out: Path | None = None
) -> BenchReport:
    """Run the rounds, `jobs` at a time."""
    with tempfile.TemporaryDirectory(prefix="unilab-nemesis-") as folder:
        tasks = [
            partial(_round, plan_round(seed, index, algos), Path(folder, f"round-{index:04d}"))
            for index in range(rounds)
        ]
        done = run_side_by_side(tasks, jobs, _show)
    report = BenchReport(
        bench="nemesis",
        settings={"rounds": rounds, "seed": seed, "algos": list(algos), "jobs": jobs},
        rows=_rows(done),
        ok=bool(done) and not any(one.violations for one in done),
    )
    if out is not None:
        report.write(out, rounds=[asdict(one) for one in done])
    return report


def plan_round(seed: int, index: int, algos: Sequence[str]) -> Round:
    """What round `index` does; the same for the same seed."""
    rng = random.Random(f"{seed}:{index}")
    victim = rng.choice(VICTIMS)
    # A launcher that is stopped for ever is nobody's to find: it is always continued.
    blows = ("kill", "segv", "pause") if victim in ("launcher", "everybody") else BLOWS
    return Round(
        index=index,
        algo=rng.choice(list(algos)),
        victim=victim,
        blow=rng.choice(blows),
        at_s=round(rng.uniform(0.0, LATEST_S), 3),
    )


def expected_codes(plan: Round) -> frozenset[int]:
    """Exit codes of the launcher that the blow allows, whenever it lands."""
    if plan.blow == "pause":  # it goes on, and is then asked to end
        codes = {128 + signal.SIGTERM}
        if plan.phase == ALONE:  # perhaps still importing: dead by the signal, 143 to a shell
            codes.add(-signal.SIGTERM)
        return frozenset(codes)
    if plan.blow == "stop":
        return frozenset({int(ExitCode.HANG)})
    if plan.victim in ("launcher", "everybody"):
        return frozenset({-signal.SIGKILL, -signal.SIGSEGV})
    return frozenset({int(ExitCode.PROCESS_DIED)})


def _round(plan: Round, folder: Path, stop: threading.Event) -> Round:
    folder.mkdir()
    job = TinyJob(folder=folder, algo=plan.algo)
    launcher = job.start((f"algo.max_iterations={ENDLESS}", *SHORT_LIMITS))
    start_s = time.monotonic()
    try:
        _strike(plan, job, launcher, start_s + plan.at_s)
        struck_s = time.monotonic()
        if _all_gone(job, launcher, struck_s + END_BOUND_S, stop):
            plan.ended_s = round(time.monotonic() - struck_s, 3)
        else:
            plan.violations.append(f"hang: alive {END_BOUND_S:.0f} s after the blow")
    finally:
        end_processes(job)
        plan.exit_code = launcher.wait()
    if plan.exit_code not in expected_codes(plan):
        expected = sorted(expected_codes(plan))
        plan.violations.append(f"exit: got {plan.exit_code}, expected one of {expected}")
    plan.output = job.said()[-3000:] if plan.violations else ""
    if stop.is_set():
        job.collect_garbage()
    else:
        _restart(plan, job)
    return plan


def _strike(plan: Round, job: TinyJob, launcher: subprocess.Popen[bytes], at_s: float) -> None:
    time.sleep(max(at_s - time.monotonic(), 0.0))
    pids = _victims(plan, job, launcher)
    plan.phase = f"{len(processes_of(job))} processes"
    if plan.blow in ("kill", "segv"):
        _send(pids, signal.SIGKILL if plan.blow == "kill" else signal.SIGSEGV)
        return
    _send(pids, signal.SIGSTOP)
    if plan.blow == "pause":
        time.sleep(PAUSE_S)
        _send(pids, signal.SIGCONT)
        time.sleep(PAUSE_S)
        _send([launcher.pid], signal.SIGTERM)


def _victims(plan: Round, job: TinyJob, launcher: subprocess.Popen[bytes]) -> list[int]:
    if plan.victim == "launcher":
        return [launcher.pid]
    if plan.victim == "everybody":
        return processes_of(job)
    deadline_s = time.monotonic() + START_BOUND_S
    while time.monotonic() < deadline_s and launcher.poll() is None:
        for pid in processes_of(job):
            if f"unilab_{plan.victim}" in command_of(pid):
                return [pid]
        time.sleep(LOOK_S)
    plan.violations.append(f"no {plan.victim} within {START_BOUND_S:.0f} s")
    return []


def _send(pids: Sequence[int], signum: int) -> None:
    for pid in pids:
        signal_process(pid, signum)


def _all_gone(
    job: TinyJob, launcher: subprocess.Popen[bytes], deadline_s: float, stop: threading.Event
) -> bool:
    while time.monotonic() < deadline_s and not stop.is_set():
        if launcher.poll() is not None and not processes_of(job):
            return True
        time.sleep(LOOK_S)
    return False


def _restart(plan: Round, job: TinyJob) -> None:
    """A normal start under the same name has to work and to clear everything away."""
    again = job.start()
    try:
        plan.restart_code = again.wait(timeout=START_BOUND_S)
    except subprocess.TimeoutExpired:
        plan.violations.append(f"restart: not ended after {START_BOUND_S:.0f} s")
        end_processes(job)
        plan.restart_code = again.wait()
    plan.reclaimed = "reclaimed" in job.said()
    if plan.restart_code != 0:
        plan.violations.append(f"restart: exit code {plan.restart_code}")
        plan.output += job.said()[-3000:]
    plan.violations += [f"leftover: {text}" for text in leftovers(job)]


def _rows(rounds: Sequence[Round]) -> list[dict]:
    """One row per kind of blow."""
    kinds = Counter((one.victim, one.blow) for one in rounds)
    rows = []
    for (victim, blow), count in sorted(kinds.items()):
        group = [one for one in rounds if (one.victim, one.blow) == (victim, blow)]
        ended = [one.ended_s for one in group if one.ended_s is not None]
        rows.append(
            {
                "victim": victim,
                "blow": blow,
                "rounds": count,
                "worst_ended_s": max(ended, default=None),
                "reclaimed": sum(one.reclaimed for one in group),
                "violations": sum(len(one.violations) for one in group),
            }
        )
    return rows


def _show(one: Round, count: int, total: int) -> None:
    print(
        f"[{count}/{total}] round {one.index}: {one.algo}, {one.blow} {one.victim} at {one.at_s} s "
        f"({one.phase}): exit {one.exit_code}, ended {one.ended_s} s, restart {one.restart_code}"
        f"{', reclaimed' if one.reclaimed else ''}: {'; '.join(one.violations) or 'ok'}",
        file=sys.stderr,
        flush=True,
    )
