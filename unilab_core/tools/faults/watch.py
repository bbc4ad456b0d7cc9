"""One case from its start to its audit; never longer than its bound.

Times are counted from the line that the struck process wrote at the very moment (monotonic clock,
shared by all processes of a machine). A fault is seen when the launcher asks the others to stop or
a child has reported its end on the heartbeat board; where it is the launcher that died, also when a
child is gone.
"""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from unilab_core.run.fault_point import FIRED
from unilab_core.run.json_files import read_json
from unilab_core.tools.faults.audit import (
    checkpoint_problem,
    end_processes,
    leftovers,
    processes_of,
    signal_process,
)
from unilab_core.tools.faults.cases import Case
from unilab_core.tools.faults.tiny_job import HANG_S, JOB, STARTUP_HANG_S, TinyJob
from unilab_ipc.errors import IpcError
from unilab_ipc.heartbeat import STOP_NONE, HeartbeatBoard, board_dims
from unilab_ipc.memory import open_segment
from unilab_ipc.peers import process_start_ticks, process_state
from unilab_ipc.segments import HEARTBEAT

BOUND_S = 120.0
"""A case that has not ended by then hangs; nothing takes half as long on a loaded machine."""
LOOK_S = 0.003
FIRED_LOOK_S = 0.05
_FIRED = re.compile(re.escape(FIRED) + r": \S+ pid (\d+) t_ns (\d+)")
_STILL = re.compile(r"no progress for .* in phase (\S+)")


@dataclass(kw_only=True, slots=True)
class Point:
    """What became of one case."""

    name: str
    row: str
    role: str
    phase: str
    action: str
    exit_code: int | None = None
    seen_s: float | None = None
    """From the fault (or the end of the hang limit) until somebody noticed."""
    ended_s: float | None = None
    """The same until no process of the job was left."""
    wall_s: float = 0.0
    """The whole case, start-up included."""
    violations: list[str] = field(default_factory=list)
    """`hang: ...`, `leftover: ...`, `exit: ...`, `message: ...`, `checkpoint: ...`, `fault: ...`"""
    output: str = ""
    """Of the launcher, where there is a violation."""

    def record(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def run_case(
    case: Case, folder: Path, *, resume: Path | None = None, stop: threading.Event | None = None
) -> Point:
    """Run one case in an empty folder.

    Args:
        case: what to do.
        folder: place for everything of it.
        resume: the run that P7 goes on from.
        stop: once set, the case is cut short and its processes are ended.
    """
    stop = threading.Event() if stop is None else stop
    job = TinyJob(folder=folder, algo=case.algo)
    fault = case.fault
    point = Point(
        name=case.name, row=case.row, role=fault.role, phase=fault.phase, action=fault.action
    )
    start_ns = time.monotonic_ns()
    launcher = job.start(case.settings, fault=str(fault), resume=resume)
    watch = _Watch(job, case, launcher)
    try:
        ended_in_time = watch.follow(start_ns + round(BOUND_S * 1e9), stop)
    finally:
        left = end_processes(job) if launcher.poll() is None or watch.overdue else []
        point.exit_code = launcher.wait()
    if not ended_in_time:
        point.violations.append(f"hang: after {BOUND_S:.0f} s processes {left} were alive")
    point.wall_s = (time.monotonic_ns() - start_ns) / 1e9
    _time(point, case, watch, job)
    _judge(point, case, job)
    if watch.overdue:
        job.collect_garbage()
    return point


class _Watch:
    """Follows one job on its heartbeat board."""

    def __init__(self, job: TinyJob, case: Case, launcher: subprocess.Popen[bytes]) -> None:
        self.seen_ns: int | None = None
        self.ended_ns: int | None = None
        self.overdue = False
        self._job = job
        self._case = case
        self._launcher = launcher
        self._board: HeartbeatBoard | None = None
        self._continue_at_s: float | None = None
        self._continued = case.continue_after_s is None
        self._next_look_s = 0.0

    def follow(self, deadline_ns: int, stop: threading.Event) -> bool:
        """Until no process is left; False when the deadline or the request to stop came first."""
        while time.monotonic_ns() < deadline_ns and not stop.is_set():
            gone = self._launcher.poll() is not None
            if gone and not (self._case.launcher_dies and processes_of(self._job)):
                self.ended_ns = time.monotonic_ns()
                self._look()
                return True
            self._look()
            self._continue()
            time.sleep(LOOK_S)
        self.overdue = True
        return False

    def _look(self) -> None:
        if self.seen_ns is not None:
            return
        if self._board is None:
            self._board = self._open()
        if self._board is not None and (
            self._board.stop_level() != STOP_NONE or self._a_child_has_left(self._board)
        ):
            self.seen_ns = time.monotonic_ns()

    def _a_child_has_left(self, board: HeartbeatBoard) -> bool:
        rows = [row for row in board.rows() if row.role != "launcher"]
        if any(row.state in ("failed", "stopped") for row in rows):
            return True
        # Where the launcher is struck, the kernel ends children that have not begun to work.
        return self._case.launcher_dies and any(
            row.state == "alive"
            and (process_start_ticks(row.pid) != row.start_ticks or process_state(row.pid) == "Z")
            for row in rows
        )

    def _open(self) -> HeartbeatBoard | None:
        launch = read_json(self._job.registry / JOB / "launch.json")
        if launch is None:
            return None
        try:
            dims = board_dims(launch["ranks"])
            return HeartbeatBoard(open_segment(HEARTBEAT, launch["board"], dims, readonly=True))
        except IpcError:  # half-made, or gone already
            return None

    def _continue(self) -> None:
        """SIGCONT to the process that stopped itself, when its time has come."""
        now_s = time.monotonic()
        if self._continued or now_s < self._next_look_s:
            return
        self._next_look_s = now_s + FIRED_LOOK_S
        fired = fired_at(self._job, self._case)
        if fired is None:
            return
        pid, t_ns = fired
        if now_s - t_ns / 1e9 >= (self._case.continue_after_s or 0.0):
            self._continued = True
            signal_process(pid, signal.SIGCONT)


def fired_at(job: TinyJob, case: Case) -> tuple[int, int] | None:
    """Pid and monotonic time (ns) of the fault, from the struck process's output."""
    role = case.fault.role
    run_dirs = job.run_dirs()
    paths = [job.output] if role == "launcher" else []
    paths += [path / "logs" / f"{role}-0.log" for path in run_dirs[-1:]]
    for path in paths:
        try:
            found = _FIRED.search(path.read_text(errors="replace"))
        except FileNotFoundError:
            continue
        if found is not None:
            return int(found[1]), int(found[2])
    return None


def _time(point: Point, case: Case, watch: _Watch, job: TinyJob) -> None:
    fired = fired_at(job, case)
    if fired is None:
        point.violations.append("fault: it never struck")
        return
    if case.row in ("F08", "F18", "F19") and case.exit_code == 0:
        return  # the job goes on: its end is not about the fault
    from_ns = fired[1]
    if case.row in ("F09", "F10"):
        phases = _STILL.findall(job.said())  # warnings first; the last line is the verdict
        slow = bool(phases) and phases[-1].startswith("startup/")
        from_ns += round((STARTUP_HANG_S if slow else HANG_S) * 1e9)
    if watch.seen_ns is not None:
        point.seen_s = max(watch.seen_ns - from_ns, 0) / 1e9
    if watch.ended_ns is not None:
        point.ended_s = max(watch.ended_ns - from_ns, 0) / 1e9


def _judge(point: Point, case: Case, job: TinyJob) -> None:
    violations = point.violations
    if point.exit_code != case.exit_code:
        violations.append(f"exit: got {point.exit_code}, expected {case.exit_code}")
    said = job.said()
    violations += [f"message: does not name {text!r}" for text in case.says if text not in said]
    if case.launcher_dies:
        # Nobody was left to remove the names: the next start or gc does.
        job.collect_garbage()
    violations += [f"leftover: {text}" for text in leftovers(job)]
    problem = checkpoint_problem(job)
    if problem is not None:
        violations.append(f"checkpoint: {problem}")
    if violations:
        point.output = said[-3000:]
