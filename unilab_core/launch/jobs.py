"""gc, list, stop, stacks: commands about jobs that are already there."""

import json
import select
import signal
import sys
from pathlib import Path

from unilab_core.launch.processes import capture_stacks
from unilab_core.run.exit_codes import ExitCode
from unilab_core.run.run_dir import RunPaths
from unilab_core.telemetry.plain import sanitize
from unilab_ipc.errors import IpcError, JobMissing, PeerDead, SegmentMissing
from unilab_ipc.gc import collect_garbage
from unilab_ipc.heartbeat import HeartbeatBoard, board_dims
from unilab_ipc.memory import open_segment
from unilab_ipc.names import validate_job_name
from unilab_ipc.peers import Peer
from unilab_ipc.registry import JobFolder, list_jobs
from unilab_ipc.segments import HEARTBEAT

STOP_WAIT_S = 300.0


def collect(*, dry_run: bool, as_json: bool) -> int:
    """Remove what provably dead runs left."""
    report = collect_garbage(dry_run)
    if as_json:
        print(json.dumps(report.to_json()), flush=True)
        return int(ExitCode.OK)
    verb = "would remove" if dry_run else "removed"
    for run in report.runs:
        print(f"run {run['run_id']} ({run['job'] or 'unknown job'}): {', '.join(run['names'])}")
    for item in report.skipped:
        print(f"left alone: {item['name']}: {item['reason']}", file=sys.stderr)
    print(f"{verb} {report.objects} objects of {len(report.runs)} dead runs", flush=True)
    return int(ExitCode.OK)


def show(*, as_json: bool) -> int:
    """Every job of this user, oldest first."""
    jobs = [_row(info.job, info.state, info.record, info.ended) for info in list_jobs()]
    if as_json:
        print(json.dumps({"jobs": jobs}), flush=True)
        return int(ExitCode.OK)
    if not jobs:
        print("no jobs", flush=True)
    for job in jobs:
        columns = ("job", "state", "algo", "task", "started_utc", "run_dir")
        print("  ".join(sanitize(str(job[name] or "-")) for name in columns), flush=True)
    return int(ExitCode.OK)


def stop(job: str) -> int:
    """The same request as Ctrl-C, then wait for the end."""
    folder, launcher = _launcher_of(job)
    try:
        launcher.send_signal(signal.SIGINT)
    except PeerDead:
        raise JobMissing(job) from None
    print(f"asked {job} to stop", flush=True)
    poll = select.poll()
    poll.register(launcher.fileno(), select.POLLIN)
    if not poll.poll(round(STOP_WAIT_S * 1000)):
        print(f"{job} has not ended after {STOP_WAIT_S:.0f} s", file=sys.stderr, flush=True)
        return int(ExitCode.HANG)
    ended = folder.read_json("ended.json") or {}
    print(f"{job}: {sanitize(str(ended.get('reason', 'ended')))}", flush=True)
    return int(ExitCode.OK)


def print_stacks(job: str) -> int:
    """Python stacks of launcher, collector and learner."""
    folder, _ = _launcher_of(job)
    launch = folder.read_json("launch.json")
    if launch is None:
        raise JobMissing(job)
    try:
        board = open_segment(HEARTBEAT, launch["board"], board_dims(launch["ranks"]), readonly=True)
    except SegmentMissing:
        raise JobMissing(job) from None
    run = RunPaths(Path(launch["run_dir"]))
    for row in HeartbeatBoard(board).rows():
        if row.state != "alive":
            continue
        print(f"{row.role}-{row.rank}: phase {row.phase}, awaits {row.awaits or 'nobody'}")
        try:
            print(capture_stacks(row.peer().open(), run.log(row.role, row.rank)), flush=True)
        except PeerDead as error:
            print(error, flush=True)
    board.close()
    return int(ExitCode.OK)


def _launcher_of(job: str) -> tuple[JobFolder, Peer]:
    """The live launcher of a job, its identity proven; JobMissing otherwise."""
    folder = JobFolder.open(validate_job_name(job))
    owner = folder.owner()
    if not folder.is_live():
        raise JobMissing(job)
    try:
        return folder, Peer("launcher", 0, int(owner["pid"]), int(owner["start_ticks"])).open()
    except (KeyError, TypeError, ValueError, IpcError):
        raise JobMissing(job) from None


def _row(job: str, state: str, record: dict | None, ended: dict | None) -> dict[str, object]:
    known = {**(record or {}), **(ended or {})}
    try:
        owner = JobFolder.open(job).owner()
    except IpcError:
        owner = {}
    row = {name: known.get(name) for name in ("algo", "task", "run_dir")}
    for name in ("pid", "started_utc"):
        row[name] = owner.get(name) or known.get(name)
    return {"job": job, "state": state, **row}
