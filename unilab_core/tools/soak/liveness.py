"""Does the soaked command move? Counters of the heartbeat board where there is one, else files.

    no job of ours below the command    bytes in the progress folder
    a job is attached                   (iteration, env steps, progress) of every role
    the job has ended, command has not  bytes again: a video is being made, say

A job is ours when its launcher is a process that the command started. Files may grow while a job
hangs (logs), hence the counters come first.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unilab_ipc.errors import IpcError, RecordInvalid, SegmentMissing, SegmentNotReady
from unilab_ipc.heartbeat import HeartbeatBoard, board_dims
from unilab_ipc.memory import Segment, open_segment
from unilab_ipc.registry import JobFolder, JobInfo, list_jobs
from unilab_ipc.segments import HEARTBEAT


@dataclass(slots=True)
class Movement:
    """When the sign of life last changed, in monotonic seconds."""

    sign: object = None
    changed_s: float = 0.0
    started: bool = False
    """Whether it has moved at all."""

    def look(self, sign: object, moved: bool, now_s: float) -> None:
        """Compare with the last sign; `moved`: a first sign that itself shows movement."""
        if sign == self.sign:
            return
        self.started = self.started or moved
        self.sign, self.changed_s = sign, now_s


class JobWatch:
    """Finds the job that the command runs, follows its board, and remembers where it writes."""

    def __init__(self) -> None:
        self.run_dir: Path | None = None
        self.run_id: str | None = None
        self.pid: int | None = None
        """The launcher that was followed."""
        self._folder: JobFolder | None = None
        self._segment: Segment | None = None

    def sign(self, pids: Collection[int]) -> tuple[tuple[int, int, int], ...] | None:
        """Counters of every role of a live job; None while there is none."""
        if self._segment is None:
            self._find(pids)
        if self._segment is None or self._folder is None:
            return None
        if not self._folder.is_live():
            self.close()
            return None
        rows = HeartbeatBoard(self._segment).rows()
        return tuple(
            (row.iteration, row.env_steps, row.progress) for row in rows if row.role != "launcher"
        )

    def look_back(self, pids: Collection[int]) -> None:
        """After the command has ended: a job too short for any sample has left its pointer."""
        if self.run_dir is not None:
            return
        for info in _jobs():
            ended = info.ended or {}
            if ended.get("pid") in pids:
                self._remember(ended)

    def close(self) -> None:
        """Unmap the board; what was remembered stays."""
        if self._segment is not None:
            self._segment.close()
        self._segment = self._folder = None

    def _find(self, pids: Collection[int]) -> None:
        for info in _jobs():
            if info.state not in ("starting", "running"):
                continue
            try:
                folder = JobFolder.open(info.job)
                launch = folder.read_json("launch.json")
                if folder.owner().get("pid") not in pids or launch is None:
                    continue
                segment = open_segment(
                    HEARTBEAT, launch["board"], board_dims(launch["ranks"]), readonly=True
                )
            except (SegmentMissing, SegmentNotReady, RecordInvalid, FileNotFoundError):
                continue  # about to appear, or just gone: the next look tells
            except IpcError:
                continue
            self._folder, self._segment = folder, segment
            self._remember(launch)
            return

    def _remember(self, record: dict[str, Any]) -> None:
        run_dir, run_id, pid = (record.get(name) for name in ("run_dir", "run_id", "pid"))
        self.run_dir = Path(run_dir) if isinstance(run_dir, str) else None
        self.run_id = run_id if isinstance(run_id, str) else None
        self.pid = pid if isinstance(pid, int) else None


def _jobs() -> list[JobInfo]:
    try:
        return list_jobs()
    except (OSError, ValueError):  # no registry, or one that is not ours
        return []
