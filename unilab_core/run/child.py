"""What the `__main__` of every child process does before and after its own work.

    def main() -> None:
        with child_session("collector") as ctx:
            ...                            # env_build, then
            job = ctx.wait_job()           # segments exist from here on
            ...                            # imports, attaching, then
            ctx.begin_work()
            ...                            # loop until ctx.stop_level() or the learner closes

Entering opens the job folder, the heartbeat board and the own doorbell, registers the process, lets
SIGUSR1 print the Python stacks into the log, and turns SIGINT, SIGTERM and SIGHUP into a report to
the launcher (which then stops the job in order). Leaving writes `logs/<role>-<rank>.error.json` if
an exception ended the work, and exits with its code (`failures.exit_code_of`).

A child never outlives its launcher: every wait watches the launcher. Besides, the launcher's death
kills it until `begin_work` (it may be deep in the import of a library, where no handler runs, and
has nothing to lose); from then on it is a signal that starts a countdown, which ends a process that
waits for nothing.
"""

import argparse
import faulthandler
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import IO, Any

from unilab_core.config.config import Config, config_from_dict
from unilab_core.run.exit_codes import ExitCode
from unilab_core.run.failures import RunDirError, exit_code_of
from unilab_core.run.json_files import read_json, write_json_atomic
from unilab_core.run.run_dir import RunPaths
from unilab_core.telemetry.plain import sanitize
from unilab_ipc.doorbell import Doorbell
from unilab_ipc.errors import Closed, IpcError, JobMissing, PeerDead
from unilab_ipc.heartbeat import STOP_NOW, STOP_SAVE, HeartbeatBoard, RoleBeat, board_dims
from unilab_ipc.memory import Segment, open_segment
from unilab_ipc.peers import Peer, set_parent_death_signal
from unilab_ipc.registry import JobFolder
from unilab_ipc.segments import HEARTBEAT
from unilab_ipc.waiting import Waiter

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STACKS_SIGNAL = signal.SIGUSR1
ORPHAN_GRACE_S = 3.0
MAX_TRACEBACK_CHARS = 16_000

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ChildContext:
    """What a child knows about its job."""

    role: str
    rank: int
    job: str
    args: argparse.Namespace
    """Parsed command line, own flags of the role included."""
    folder: JobFolder
    launch: dict[str, Any]
    """launch.json: run id, ring names, thread plan."""
    config: Config
    run: RunPaths
    board: HeartbeatBoard
    beat: RoleBeat
    launcher: Peer
    """The launcher, open."""
    bell: Doorbell
    """The own doorbell; every reason to wake this role rings it."""
    launcher_bell: Doorbell
    last_seqs: Callable[[], dict[str, int]] = field(default=dict)
    """Set by the role: its newest sequence numbers, for error.json."""

    @property
    def debugged_role(self) -> str | None:
        """The role that somebody runs under a debugger; nobody's waits are bounded then."""
        return self.launch.get("debug")

    @property
    def _start_limit_s(self) -> float | None:
        """Bound of a wait for another role's start; the death of the launcher ends it anyway."""
        return None if self.debugged_role else self.config.training.startup_hang_after_s

    @property
    def num_threads(self) -> int | None:
        """CPU threads planned for this role; None leaves libraries at their default."""
        threads = self.launch.get("threads", {}).get(self.role)
        return int(threads) if threads is not None else None

    def stop_level(self) -> int:
        """0 run, 1 finish the iteration and save, 2 leave without saving."""
        return self.board.stop_level()

    def waiter(self, peers: Sequence[Peer] = (), *, stop_at: int = STOP_NOW) -> Waiter:
        """Waits on the own bell; the launcher is always watched, `peers` in addition.

        A wait ends with Closed once the stop level reaches `stop_at`.
        """
        return Waiter(
            self.bell,
            [self.launcher, *peers],
            lambda: self.board.stop_level() >= stop_at,
            self.beat,
        )

    def wait_job(self) -> dict[str, Any]:
        """Wait until the launcher has created every segment; the contents of job.json."""
        self.beat.phase("startup/wait_job", awaits="launcher")
        record = self.waiter(stop_at=STOP_SAVE).wait(
            lambda: self.folder.read_json("job.json"),
            timeout_s=self._start_limit_s,
            awaits="launcher",
        )
        self.beat.advance()
        return record

    def begin_work(self) -> None:
        """All is imported, and there will be something to lose: the launcher's death is reported.

        Raises:
            PeerDead: the launcher has just died.
        """
        _follow_launcher(self.launcher, signal.SIGTERM)

    def wait_peer(self, role: str, rank: int = 0) -> Peer:
        """The other role, open, once it has registered on the board."""

        def registered() -> Peer | None:
            row = self.board.row(role, rank)
            return row.peer().open() if row.state == "alive" else None

        return self.waiter(stop_at=STOP_SAVE).wait(
            registered, timeout_s=self._start_limit_s, awaits=role
        )

    def bell_of(self, role: str, rank: int = 0) -> Doorbell:
        """The doorbell that wakes another role."""
        return Doorbell.open(self.folder.bell_path(role, rank))

    def report_facts(self, facts: Mapping[str, Any]) -> None:
        """What this process really runs with, for the runtime manifest; plain values."""
        self.folder.write_json(f"facts-{self.role}-{self.rank}.json", facts)

    def ring_launcher(self) -> None:
        """Tell the launcher to look (a file was written, a signal arrived)."""
        self.launcher_bell.ring()


def child_parser(role: str) -> argparse.ArgumentParser:
    """The arguments that every child has; a role may add its own."""
    parser = argparse.ArgumentParser(
        prog=f"python -m unilab_{role}", description=f"{role} process; unilab-launch starts it"
    )
    parser.add_argument("--job", required=True, help="name of the job to take part in")
    parser.add_argument("--rank", type=int, default=0, help="rank of this process (default 0)")
    return parser


@contextmanager
def child_session(role: str, args: argparse.Namespace | None = None) -> Iterator[ChildContext]:
    """Take part in a job as `role`; leaving the block ends the process with its exit code.

    Args:
        role: collector or learner.
        args: what `child_parser(role)` parsed; None parses sys.argv.
    """
    args = child_parser(role).parse_args() if args is None else args
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        ctx, closers = _open_context(role, args)
    except (IpcError, ValueError, OSError) as error:
        print(f"{role}-{args.rank}: {sanitize(str(error), 1000)}", file=sys.stderr, flush=True)
        raise SystemExit(exit_code_of(error)) from None
    code = int(ExitCode.OK)
    try:
        yield ctx
        ctx.beat.end("ended")
    except Closed as reason:
        log.info("leaving: %s", reason)
        ctx.beat.end("stopped")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else (1 if error.code else 0)
        ctx.beat.end("ended" if code == 0 else "failed")
    except BaseException as error:
        code = exit_code_of(error)
        _report_failure(ctx, error, code)
        ctx.beat.end("failed")
        if ctx.debugged_role == role:
            ctx.ring_launcher()
            raise  # the debugger's post-mortem wants the exception, not an exit code
    finally:
        signal.set_wakeup_fd(-1)
        for close in closers:
            close()
    raise SystemExit(code)


def _open_context(
    role: str, args: argparse.Namespace
) -> tuple[ChildContext, list[Callable[[], None]]]:
    folder = JobFolder.open(args.job)
    launch = folder.read_json("launch.json")
    if launch is None:
        raise JobMissing(args.job)
    run = RunPaths(Path(launch["run_dir"]))
    record = read_json(run.config)
    if record is None:
        raise RunDirError(f"{run.config}: missing or damaged")
    segment = open_segment(HEARTBEAT, launch["board"], board_dims(launch["ranks"]))
    board = HeartbeatBoard(segment)
    launcher = board.row("launcher", 0).peer().open()
    ctx = ChildContext(
        role=role,
        rank=args.rank,
        job=args.job,
        args=args,
        folder=folder,
        launch=launch,
        config=config_from_dict(record["config"]),
        run=run,
        board=board,
        beat=board.role(role, args.rank),
        launcher=launcher,
        bell=Doorbell.open(folder.bell_path(role, args.rank)),
        launcher_bell=Doorbell.open(folder.bell_path("launcher", 0)),
    )
    _follow_launcher(launcher, signal.SIGKILL)
    stacks_file = _install_stacks(run.log(role, args.rank))
    _install_signals(ctx)
    ctx.beat.register()
    ctx.beat.phase("startup/begin")
    _ring_everybody(folder)  # somebody may wait for this registration
    return ctx, _closers(ctx, segment, stacks_file)


def _follow_launcher(launcher: Peer, signum: signal.Signals) -> None:
    """Ask for `signum` at the launcher's death.

    A process started by hand under a debugger has another parent; the waits still watch.

    Raises:
        PeerDead: the launcher has died.
    """
    if os.getppid() == launcher.pid:
        set_parent_death_signal(launcher.pid, signum)
    elif launcher.is_dead():
        raise launcher.dead_error()


def _ring_everybody(folder: JobFolder) -> None:
    for path in folder.path.glob("*.bell"):
        bell = Doorbell.open(path)
        bell.ring()
        bell.close()


def _closers(ctx: ChildContext, segment: Segment, stacks_file: IO[str]) -> list[Callable[[], None]]:
    """What leaving closes. The board stays mapped: a late signal handler may still write to it."""
    del segment
    return [ctx.launcher.close, ctx.bell.close, stacks_file.flush]


def _install_stacks(path: Path) -> IO[str]:
    """SIGUSR1 and fatal errors print every thread's Python stack into the log, even in C code."""
    stacks_file = path.open("a", encoding="utf-8")
    faulthandler.enable(stacks_file)
    faulthandler.register(STACKS_SIGNAL, file=stacks_file, all_threads=True)
    return stacks_file


def _install_signals(ctx: ChildContext) -> None:
    """A termination signal is reported; the launcher answers with a stop of the whole job."""

    def report(signum: int, _frame: FrameType | None) -> None:
        ctx.beat.report_signal(signum)
        ctx.launcher_bell.ring()
        if ctx.launcher.is_dead():
            # Nobody is left to stop us: waits end by themselves, this ends everything else.
            faulthandler.dump_traceback_later(ORPHAN_GRACE_S, exit=True)

    for signum in STOP_SIGNALS:
        signal.signal(signum, report)
    ctx.bell.wake_on_signals()


def _report_failure(ctx: ChildContext, error: BaseException, code: int) -> None:
    """Write error.json and the traceback; must not raise, or the first cause would be lost."""
    trace = "".join(traceback.format_exception(error))
    log.error("%s", trace)
    try:
        seqs = ctx.last_seqs()
    except (ValueError, TypeError, RuntimeError):  # the segments may be what failed
        seqs = {}
    message = str(error).strip() or type(error).__name__
    record = {
        "role": ctx.role,
        "rank": ctx.rank,
        "pid": os.getpid(),
        "phase": ctx.board.row(ctx.role, ctx.rank).phase,
        "exception": type(error).__name__,
        "message": message[:MAX_TRACEBACK_CHARS],
        "traceback": trace[-MAX_TRACEBACK_CHARS:],
        "last_seqs": seqs,
        "exit_code": code,
        "blames": _blamed_role(error),
        "time_utc": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    try:
        write_json_atomic(ctx.run.error(ctx.role, ctx.rank), record)
    except OSError as failed:
        log.error("cannot write %s: %s", ctx.run.error(ctx.role, ctx.rank), failed)


def _blamed_role(error: BaseException) -> str | None:
    """The role whose death this failure only follows from."""
    return error.role if isinstance(error, PeerDead) else None
