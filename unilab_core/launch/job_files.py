"""The job folder, the shared segments and their records, from the claim to the removal.

    claim            <registry>/<job>/owner.lock
    prepare          board and metric rings, bells, launch.json
    announce         slot and ingress from env_spec.json, then job.json: attachable
    close            names unlinked in reverse order, ended.json, lock dropped

The creating process alone unlinks. `abandon` leaves everything to the garbage collector, which the
third interrupt asks for.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unilab_core.config.config import Config
from unilab_core.contracts import EnvSpec
from unilab_core.launch.plan import ROLES
from unilab_core.run.job_segments import SegmentSpec, experience_segments, ring_segments
from unilab_core.run.threads import ThreadPlan
from unilab_ipc.doorbell import Doorbell
from unilab_ipc.errors import NoSpace
from unilab_ipc.heartbeat import HeartbeatBoard, RoleBeat
from unilab_ipc.memory import Segment, create_segment, shm_free_bytes
from unilab_ipc.names import segment_name
from unilab_ipc.registry import JobFolder

LAUNCH_VERSION = 1
JOB_VERSION = 1


@dataclass(kw_only=True, slots=True, frozen=True)
class ProcessRecord:
    """Identity of one process in job.json."""

    role: str
    rank: int
    pid: int
    start_ticks: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "role": self.role,
            "rank": self.rank,
            "pid": self.pid,
            "start_ticks": self.start_ticks,
        }


@dataclass(slots=True)
class JobFiles:
    """Everything outside the run directory that belongs to one job."""

    folder: JobFolder
    run_id: str
    run_dir: Path
    config: Config
    threads: ThreadPlan
    trace: dict[str, Any] | None = None
    """Root and rhythm of the RL trace (`job_trace.trace_facts`); None: nothing is written."""
    debug: str | None = None
    """Role that somebody starts by hand under a debugger (`--debug`)."""
    _segments: list[tuple[SegmentSpec, Segment]] = field(default_factory=list)
    _bells: dict[str, Doorbell] = field(default_factory=dict)

    def prepare(self) -> None:
        """Create what children need at once; NoSpace names need and free bytes."""
        self._create(ring_segments())
        for role in ("launcher", *ROLES):
            self._bells[role] = Doorbell.create(self.folder.bell_path(role, 0))
        self.folder.write_json("launch.json", self._launch_record())

    def announce(self, processes: list[ProcessRecord]) -> EnvSpec:
        """Create the segments that the environment sizes, then make the job attachable."""
        spec = self.env_spec()
        assert spec is not None
        self._create(experience_segments(self.config, spec))
        self.write_job_record(processes)
        return spec

    def env_spec(self) -> EnvSpec | None:
        """What the collector wrote about its environment, once it has."""
        record = self.folder.read_json("env_spec.json")
        return None if record is None else EnvSpec.from_json(record)

    def write_job_record(self, processes: list[ProcessRecord]) -> None:
        """job.json, atomically: its presence means attachable."""
        training = self.config.training
        self.folder.write_json(
            "job.json",
            {
                "version": JOB_VERSION,
                "job": self.folder.job,
                "run_id": self.run_id,
                "run_dir": str(self.run_dir),
                "algo": self.config.algo.algo,
                "task": training.task_name,
                "sim": training.sim_backend,
                "rl_trace": self.trace,
                "processes": [process.to_json() for process in processes],
                "segments": [
                    {
                        "kind": spec.kind,
                        "name": segment.name,
                        "rank": spec.rank,
                        "bytes": segment.size_bytes,
                        "fingerprint": segment.fingerprint,
                    }
                    for spec, segment in self._segments
                ],
            },
        )

    def segment(self, kind: str) -> Segment:
        """One of the segments created so far."""
        return next(segment for spec, segment in self._segments if spec.kind == kind)

    def find_segment(self, kind: str) -> Segment | None:
        """The same, or None where the run has not come that far or has no such segment."""
        return next((segment for spec, segment in self._segments if spec.kind == kind), None)

    def segment_sizes(self) -> list[tuple[str, int]]:
        """Kind and bytes of every segment created so far, in that order."""
        return [(spec.kind, segment.size_bytes) for spec, segment in self._segments]

    def board(self) -> HeartbeatBoard:
        """The heartbeat board."""
        return HeartbeatBoard(self.segment("heartbeat"))

    def beat(self) -> RoleBeat:
        """The launcher's own row."""
        return self.board().role("launcher", 0)

    def bell(self) -> Doorbell:
        """The launcher's doorbell."""
        return self._bells["launcher"]

    def ring_children(self) -> None:
        """Wake everybody, the last started first."""
        for role in reversed(ROLES):
            self._bells[role].ring()

    def size_bytes(self) -> int:
        """Shared memory created so far."""
        return sum(segment.size_bytes for _, segment in self._segments)

    def require_whole(self) -> None:
        """SegmentCorrupt if a third party has cut one of the segments short."""
        for _, segment in self._segments:
            segment.require_whole()

    def unlink(self) -> None:
        """Remove the shared names; calling again does nothing."""
        while self._segments:
            _, segment = self._segments.pop()
            segment.unlink()
            segment.close()

    def close(self, ended: dict[str, Any]) -> None:
        """Remove everything and leave the pointer of an ended job."""
        self.unlink()
        for bell in self._bells.values():
            bell.close()
        self._bells.clear()
        self.folder.release(ended)

    def _create(self, specs: tuple[SegmentSpec, ...]) -> None:
        """Decided on the sum, so that the message holds the numbers that matter."""
        need_bytes = sum(spec.size_bytes for spec in specs)
        free_bytes = shm_free_bytes()
        if need_bytes > free_bytes:
            raise NoSpace(need_bytes, free_bytes)
        for spec in specs:
            name = segment_name(self.run_id, spec.kind, spec.rank)
            self._segments.append((spec, create_segment(spec.layout, name, spec.dims)))

    def _launch_record(self) -> dict[str, Any]:
        training = self.config.training
        rings = {}
        for spec, segment in self._segments:
            role, _, kind = spec.kind.partition("_")
            if kind == "metrics":
                ring = {"name": segment.name, "capacity_bytes": spec.dims["B"]}
                rings[f"{role}-{spec.rank}"] = ring
        return {
            "version": LAUNCH_VERSION,
            "job": self.folder.job,
            "run_id": self.run_id,
            "run_dir": str(self.run_dir),
            "algo": self.config.algo.algo,
            "task": training.task_name,
            "sim": training.sim_backend,
            "rl_trace": self.trace,
            "board": self.segment("heartbeat").name,
            "rings": rings,
            "ranks": 1,
            "pid": os.getpid(),
            "debug": self.debug,
            "threads": {"collector": self.threads.collector, "learner": self.threads.learner},
        }
