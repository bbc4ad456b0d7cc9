"""Where records come from: a running job's shared memory, or what a finished run left behind.

LiveSource      attaches read-only to the board and to the two metric rings of rank 0. It holds no
                lock, rings no bell and writes nothing, so the job cannot notice it.
FinishedSource  the run directory's last_state.json, in one batch.

Both give a `Batch` per `poll()`. A live source whose job ends keeps what it has mapped, reads the
rest of the rings and says why the job ended.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from unilab_core.run.job_segments import open_ring
from unilab_core.run.job_trace import trace_counts
from unilab_core.run.json_files import read_json
from unilab_core.run.run_dir import RunPaths
from unilab_ipc.errors import RecordInvalid, SegmentMismatch, SegmentMissing, SegmentNotReady
from unilab_ipc.heartbeat import HeartbeatBoard, RoleStatus, board_dims
from unilab_ipc.memory import Segment, open_segment
from unilab_ipc.metric_queue import RingReader
from unilab_ipc.peers import process_state
from unilab_ipc.registry import JobFolder
from unilab_ipc.segments import HEARTBEAT
from unilab_monitor.model import Batch
from unilab_monitor.view import EndView, JobFacts, ProcessView

MAX_RECORDS_PER_POLL = 20_000
COUNT_TRACE_LOSSES_NS = 5_000_000_000
LOOK_AT_KERNEL_AFTER_S = 2.0
"""A process silent for this long has its kernel state looked up (stopped is not dead)."""

KILLED_REASON = "the launcher died without cleaning up"
NO_RECORD_REASON = "ended without a last state"


class Source(Protocol):
    """What a feed reads."""

    def poll(self) -> Batch:
        """What is new since the last call; never waits."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class LiveSource:
    """A job in the registry that is starting or running, or whose launcher was just killed."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._run_id: object = None
        self._launch_stamp: tuple[int, int] | None = None
        self._facts = JobFacts(job=folder.job)
        self._segments: list[Segment] = []
        self._board: HeartbeatBoard | None = None
        self._learner: RingReader | None = None
        self._collector: RingReader | None = None
        self._attachable = False
        self._end: EndView | None = None
        self._trace_dropped = 0
        self._count_again_ns = 0

    def poll(self) -> Batch:
        """Attach as soon as that is possible, then read the rings and the board."""
        if self._end is None:
            self.attach()
        if self._end is None:
            # Asked before the rings are read: what was written before the end is then not missed.
            self._end = self._look_for_end()
        learner, collector = _read(self._learner), _read(self._collector)
        now_ns = time.monotonic_ns()
        return Batch(
            now_ns=now_ns,
            facts=self._facts,
            learner=learner,
            collector=collector,
            processes=self._processes(now_ns),
            attached=self._attachable,
            stop_level=0 if self._board is None else self._board.stop_level(),
            lapped=sum(r.lapped_count for r in (self._learner, self._collector) if r),
            trace_dropped=self._count_trace_losses(now_ns),
            unreadable=sum(r.invalid_count for r in (self._learner, self._collector) if r),
            end=self._end,
        )

    def close(self) -> None:
        """Unmap; the segments belong to the launcher."""
        self._board = self._learner = self._collector = None
        for segment in self._segments:
            segment.close()
        self._segments = []

    def launcher(self) -> RoleStatus | None:
        """The launcher's row, for whoever wants to signal it."""
        return None if self._board is None else self._board.row("launcher", 0)

    def attach(self) -> bool:
        """Map the board and the rings if they exist; whether they are mapped.

        Raises:
            SegmentMismatch: they were made by another version.
        """
        if self._board is not None:
            return True
        launch = _record(self._folder, "launch.json")
        if launch is None:
            return False
        try:
            board = open_segment(
                HEARTBEAT, launch["board"], board_dims(launch["ranks"]), readonly=True
            )
            rings = [open_ring(launch, role, readonly=True) for role in ("learner", "collector")]
        except (SegmentMissing, SegmentNotReady):
            return False
        except (KeyError, TypeError, ValueError) as error:
            raise SegmentMismatch("launch.json as this version writes it", repr(error)) from None
        self._run_id = launch.get("run_id")
        self._facts = facts_of(launch, self._folder.job)
        self._segments = [board, *rings]
        self._board = HeartbeatBoard(board)
        self._learner, self._collector = (RingReader(ring) for ring in rings)
        return True

    def _count_trace_losses(self, now_ns: int) -> int:
        """Lines that the writers of the RL trace have lost; their records are read now and then."""
        if self._facts.trace_root is not None and now_ns >= self._count_again_ns:
            self._count_again_ns = now_ns + COUNT_TRACE_LOSSES_NS
            self._trace_dropped = dropped_lines(trace_counts(self._folder))
        return self._trace_dropped

    def _look_for_end(self) -> EndView | None:
        folder = self._folder
        live = folder.is_live()
        if not live:
            ended = _record(folder, "ended.json")
            self._facts = facts_of(ended, folder.job, self._facts) if ended else self._facts
            return end_of(ended) if ended else EndView(reason=KILLED_REASON)
        if not self._attachable:
            self._attachable = self._board is not None and _record(folder, "job.json") is not None
        elif self._replaced():
            return EndView(reason=f"ended; another run has taken the name {folder.job}")
        return None

    def _replaced(self) -> bool:
        """Whether another launcher owns the folder now; the record is read only when it changed."""
        stamp = _stamp(self._folder.path / "launch.json")
        if stamp is None or stamp == self._launch_stamp:
            return False
        self._launch_stamp = stamp
        launch = _record(self._folder, "launch.json")
        return launch is not None and launch.get("run_id") != self._run_id

    def _processes(self, now_ns: int) -> tuple[ProcessView, ...]:
        if self._board is None:
            return ()
        rows = (row for row in self._board.rows() if row.state != "missing")
        return tuple(_process(row, now_ns) for row in rows)


class FinishedSource:
    """A run that has ended: its last state, given once; later batches bring nothing new."""

    def __init__(self, run_dir: Path | None, ended: Mapping[str, Any] | None) -> None:
        self._state: dict[str, Any] = {}
        known: dict[str, Any] = {}
        if run_dir is not None:
            paths = RunPaths(run_dir)
            self._state = read_json(paths.last_state) or {}
            # What was written later knows more; a killed run left only its configuration.
            for record in (read_json(paths.config), read_json(paths.summary), self._state):
                known.update(record or {})
            known["run_dir"] = str(run_dir)
        known.update(ended or {})
        self._facts = facts_of(known, known.get("job"))
        self._end = end_of(known)
        summary = None if run_dir is None else read_json(RunPaths(run_dir).summary)
        trace = (summary or {}).get("rl_trace")
        self._trace_dropped = dropped_lines(trace.get("lines")) if isinstance(trace, dict) else 0
        self._records = {name: _cleaned(self._state.get(name)) for name in ("learner", "collector")}

    def poll(self) -> Batch:
        """Everything the first time."""
        learner, collector = self._records["learner"], self._records["collector"]
        self._records = {"learner": [], "collector": []}
        now_ns = self._state.get("t_ns")
        if type(now_ns) is not int:
            times = [r.get("t_ns") for r in (*learner, *collector)]
            now_ns = max((t for t in times if type(t) is int), default=0)
            self._state["t_ns"] = now_ns
        return Batch(
            now_ns=now_ns,
            facts=self._facts,
            learner=learner,
            collector=collector,
            processes=_saved_processes(self._state.get("board"), now_ns),
            attached=True,
            trace_dropped=self._trace_dropped,
            end=self._end,
        )

    def close(self) -> None:
        """Nothing is held."""


def dropped_lines(counts: object) -> int:
    """Lines that all writers of a trace have lost, from their records; foreign values count 0."""
    if not isinstance(counts, Mapping):
        return 0
    dropped = (one.get("dropped") for one in counts.values() if isinstance(one, Mapping))
    return sum(number for number in dropped if type(number) is int)


def facts_of(record: Mapping[str, Any], job: object, base: JobFacts | None = None) -> JobFacts:
    """What a registry or run-directory record says about a job; foreign values are checked."""
    base = base or JobFacts()
    trace = record.get("rl_trace")
    trace = trace if isinstance(trace, Mapping) else {}
    return JobFacts(
        job=_text(job) or base.job,
        algo=_text(record.get("algo")) or base.algo,
        task=_text(record.get("task")) or base.task,
        sim=_text(record.get("sim")) or _text(record.get("sim_backend")) or base.sim,
        run_dir=_text(record.get("run_dir")) or base.run_dir,
        trace_root=_text(trace.get("root")) or base.trace_root,
        trace_times=_text(trace.get("times")) or base.trace_times,
    )


def end_of(record: Mapping[str, Any]) -> EndView:
    """How a job ended, as ended.json, last_state.json or run_summary.json tell it."""
    reason = (record.get(name) for name in ("reason", "completion_reason", "status"))
    code = record.get("exit_code")
    return EndView(
        reason=next((text for text in map(_text, reason) if text), NO_RECORD_REASON),
        exit_code=code if type(code) is int else None,
        ended_utc=_text(record.get("ended_utc")) or _text(record.get("end_time_utc")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _read(reader: RingReader | None) -> list[dict[str, Any]]:
    return [] if reader is None else reader.read(MAX_RECORDS_PER_POLL)


def _record(folder: JobFolder, name: str) -> dict[str, Any] | None:
    try:
        return folder.read_json(name)
    except RecordInvalid:
        return None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        info = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return info.st_ino, info.st_mtime_ns


def _process(row: RoleStatus, now_ns: int) -> ProcessView:
    age_s = max(now_ns - row.beat_ns, 0) / 1e9
    silent = row.state == "alive" and age_s > LOOK_AT_KERNEL_AFTER_S
    return ProcessView(
        role=row.role,
        rank=row.rank,
        pid=row.pid,
        phase=row.phase,
        awaits=row.awaits,
        age_s=age_s,
        os_state=process_state(row.pid) if silent else None,
        state=row.state,
    )


def _cleaned(records: object) -> list[dict[str, Any]]:
    """Records from JSON: figures that were not finite have become null and are left out."""
    if not isinstance(records, list):
        return []
    return [
        {name: _without_nulls(value) for name, value in record.items()}
        for record in records
        if isinstance(record, Mapping)
    ]


def _without_nulls(value: object) -> object:
    # The collector's `episodes` table has fields that may be null by contract.
    if isinstance(value, Mapping) and "completed" not in value:
        return {name: item for name, item in value.items() if item is not None}
    return value


def _saved_processes(rows: object, now_ns: int) -> tuple[ProcessView, ...]:
    if not isinstance(rows, list):
        return ()
    return tuple(
        ProcessView(
            role=str(row.get("role")),
            rank=row["rank"] if type(row.get("rank")) is int else 0,
            pid=row["pid"] if type(row.get("pid")) is int else 0,
            phase=str(row.get("phase")),
            awaits=row["awaits"] if isinstance(row.get("awaits"), str) else None,
            age_s=(now_ns - row["beat_ns"]) / 1e9 if type(row.get("beat_ns")) is int else None,
            state=str(row.get("state", "ended")),
        )
        for row in rows[:64]
        if isinstance(row, Mapping) and row.get("state") != "missing"
    )
