"""TraceReader: one trace directory, read as it grows; a snapshot of all figures at any time.

One thread calls `poll` and `snapshot`; `trace`, `trajectory` and the like may be called by another
thread between them under `lock`. What is on disk at the first round is history: its progress lines
have no arrival times, unless a monitor that ran before has kept them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from unilab_core.telemetry.rl_trace import formats
from unilab_core.telemetry.rl_trace.damage import Damage, total
from unilab_core.telemetry.rl_trace.flow_blocks import FlowBlocks
from unilab_core.telemetry.rl_trace.flow_figures import (
    Distribution,
    FlowFigures,
    transition_figures,
)
from unilab_core.telemetry.rl_trace.flow_shards import ShardParser
from unilab_core.telemetry.rl_trace.flow_store import FlowStore, Limits
from unilab_core.telemetry.rl_trace.flow_waste import FlowSettings
from unilab_core.telemetry.rl_trace.progress_figures import (
    StepRuns,
    progress_figures,
)
from unilab_core.telemetry.rl_trace.progress_fold import ProgressFold
from unilab_core.telemetry.rl_trace.progress_store import ProgressStore
from unilab_core.telemetry.rl_trace.snapshot import (
    Depth,
    Snapshot,
    anchors_of,
    choose_job,
    job_name,
)
from unilab_core.telemetry.rl_trace.stage_aliases import StageAliases, load_aliases
from unilab_core.telemetry.rl_trace.state_file import (
    MAX_ARRIVALS,
    FileState,
    load_state,
    save_state,
)
from unilab_core.telemetry.rl_trace.step_figures import (
    trainer_idle_pct,
    with_windows,
)
from unilab_core.telemetry.rl_trace.tails import (
    Folder,
    Tail,
    damaged_files,
    foreign_entries,
    mark_torn,
    read_lines,
)
from unilab_core.telemetry.rl_trace.trace_view import TraceView, trace_view
from unilab_core.telemetry.rl_trace.trajectory_index import TrajectoryIndex
from unilab_core.telemetry.rl_trace.trajectory_match import TrajectoryMatch
from unilab_core.telemetry.rl_trace.trajectory_view import TrajectoryView

CHUNK_BYTES = 1024 * 1024
FLUSH_ROWS = 50_000
LIVE_S = 600.0
"""A run whose newest event is older is taken as ended."""

FOLDERS = (formats.PROGRESS_DIR, formats.SAMPLE_DIR, formats.TRAJECTORY_DIR)
RUN_SUMMARY_FILE = "run_summary.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSettings:
    """How a directory is read."""

    times_path: Path | None = None
    """Exact times of progress lines; None: `progress.tsidx` beside the root."""
    state_path: Path | None = None
    """Where arrival times are kept; None: nowhere."""
    clock_offsets_ms: Mapping[str, int] | None = None
    """Host name to what is added to its times."""
    max_staleness: int | None = None
    """In-flight trajectories older by more steps count as lost."""
    ended: bool | None = None
    """Whether the run has ended; None: judged by its files."""
    limits: Limits = field(default_factory=Limits)


class TraceReader:
    """Incremental reader of a trace directory."""

    def __init__(
        self,
        root: Path,
        settings: ReaderSettings | None = None,
        aliases: StageAliases | None = None,
    ) -> None:
        self.root = root
        self.settings = settings or ReaderSettings()
        self.aliases = aliases or load_aliases()
        self.lock = threading.RLock()
        self.selected_job: str | None = None
        self._rewritten = 0
        state_path = self.settings.state_path
        self._kept = {} if state_path is None else load_state(state_path)
        self._saved_pos: dict[str, int] = {}
        self._start_over()

    def poll(self, budget_s: float = 0.4) -> bool:
        """Read what is new for about `budget_s`; True when everything on disk has been read."""
        with self.lock:
            deadline = time.monotonic() + budget_s
            if not self._scan():
                self._rewritten += 1
                self._start_over()
                self._scan()
            self._read_progress()
            done = self._read_samples(deadline)
            done = self._read_trajectories(deadline) and done
            self.store.flush()
            if done:
                self.store.settle()
                self._following = True
            self.complete = done
            return done

    def poll_progress(self) -> None:
        """Read new progress lines only: their arrival is their time, so they are asked for often.

        A file that was replaced is left to the next `poll`.
        """
        with self.lock:
            if self._folders[formats.PROGRESS_DIR].scan():
                self._scan_times()
                self._read_progress()

    def snapshot(self, now_ms: int | None = None, depth: Depth = Depth.FLOW) -> Snapshot:
        """Figures of what has been read; above `depth` those of an earlier call, if any."""
        with self.lock:
            now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
            return self._snapshot(now_ms, depth)

    def trace(self, name: str) -> TraceView | None:
        """All events of a trajectory (`<uid>/<n>`) of the shown job; None if it has none."""
        with self.lock:
            job = self._job()
            code = -1 if job is None else self.store.ids.find(job, [name])[0]
            if job is None or code < 0:
                return None
            opaque = tuple(
                place
                for parser in self._parsers.values()
                for sample_id, place in parser.opaque
                if sample_id == name.encode("utf-8", "surrogateescape")
            )
            return trace_view(
                self.store,
                self.aliases,
                self._path_of,
                code,
                now_ms=time.time_ns() // 1_000_000,
                opaque=opaque,
            )

    def transitions_of_step(self, step: int) -> dict[str, Distribution]:
        """Transitions of the trajectories of one training step of the shown job."""
        with self.lock:
            job = self._job()
            self.store.flush()
            self._blocks.update(-1 if job is None else job)
            return transition_figures(self._blocks.table_of_step(step))

    def trajectory(self, name: str) -> tuple[TrajectoryView | None, str]:
        """The newest line of a trajectory, and its JSON text; (None, "") if there is none."""
        with self.lock:
            uid, _, index = name.rpartition("/")
            digits = index.isascii() and index.isdigit() and len(index) < 19
            entry = self.trajectories.by_id.get((uid, int(index))) if digits else None
            if entry is None:
                return None, ""
            return self.trajectories.view(entry), self.trajectories.pretty_json(entry)

    def save(self) -> bool:
        """Keep arrival times and positions of progress files; False if that failed."""
        path = self.settings.state_path
        if path is None:
            return True
        with self.lock:
            tails = self._folders[formats.PROGRESS_DIR].tails
            positions = {name: tail.pos for name, tail in tails.items()}
            if positions == self._saved_pos:
                return True
            files = {
                name: FileState(tail.inode, tail.pos, self.progress.arrivals(name, MAX_ARRIVALS))
                for name, tail in tails.items()
                if name in self.progress.files
            }
            self._saved_pos = positions
        return save_state(path, files)

    # Reading

    def _start_over(self) -> None:
        self._next_number = 0
        self._folders = {
            name: Folder(self.root, name, suffix, self._number)
            for name, suffix in zip(FOLDERS, (".log", ".csv", ".jsonl"), strict=True)
        }
        self.store = FlowStore(self.aliases, self.settings.limits)
        self._blocks = FlowBlocks(self.store)
        self.progress = ProgressStore()
        self.trajectories = TrajectoryIndex()
        self.complete = False
        self._fold = ProgressFold(self.progress)
        self._runs = StepRuns()
        self._parsers: dict[int, ShardParser] = {}
        self._times: Tail | None = None
        self._following = False
        self._ignored: tuple[str, ...] = ()
        self._turn = 0
        self._match = TrajectoryMatch(self.store.ids, self.trajectories)
        self._flow: FlowFigures | None = None
        self._flow_job = -1

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _scan(self) -> bool:
        sound = all([folder.scan() for folder in self._folders.values()])
        ignored = [name for folder in self._folders.values() for name in folder.ignored]
        self._ignored = tuple(ignored + foreign_entries(self.root, frozenset(FOLDERS)))
        self._scan_times()
        return sound

    def _scan_times(self) -> None:
        path = self.settings.times_path or self.root.parent / formats.PROGRESS_TIMES_FILE
        try:
            info = path.stat()
        except OSError:
            return
        if self._times is None or info.st_ino != self._times.inode:
            self._times = Tail(path, self._number(), info.st_ino)
        self._times.size = info.st_size

    def _read_progress(self) -> None:
        times = self._times
        while times is not None and times.has_news:
            found = read_lines(times, CHUNK_BYTES)
            if found is None:
                break
            self.progress.add_times(found[0], times.damage)
        for name, tail in sorted(self._folders[formats.PROGRESS_DIR].tails.items()):
            kept = self._kept.get(name)
            arrivals = kept.arrivals if kept is not None and kept.inode == tail.inode else None
            while tail.has_news:
                found = read_lines(tail, CHUNK_BYTES)
                if found is None:
                    break
                arrived_ms = time.time_ns() // 1_000_000 if self._following else 0
                self.progress.add(name, *found, tail.damage, arrived_ms, arrivals)

    def _read_samples(self, deadline: float) -> bool:
        """One piece of each file in turn, so that early figures are of all of them."""
        waiting = [t for t in self._folders[formats.SAMPLE_DIR].tails.values() if t.has_news]
        while waiting:
            self._turn %= len(waiting)
            tail = waiting[self._turn]
            found = read_lines(tail, CHUNK_BYTES)
            if found is not None:
                self._parser(tail).parse(*found)
                if self.store.batch.num_rows >= FLUSH_ROWS:
                    self.store.flush()
            if found is None or not tail.has_news:
                waiting.pop(self._turn)
            else:
                self._turn += 1
            if time.monotonic() > deadline:
                return not waiting
        return True

    def _read_trajectories(self, deadline: float) -> bool:
        for tail in self._folders[formats.TRAJECTORY_DIR].tails.values():
            while tail.has_news:
                if not self.trajectories.read(tail, 4 * CHUNK_BYTES):
                    tail.tried_size = tail.size
                if time.monotonic() > deadline:
                    return False
        return True

    def _parser(self, tail: Tail) -> ShardParser:
        parser = self._parsers.get(tail.number)
        if parser is None:
            host = tail.name.rpartition("-pid")[0]
            offset_ms = (self.settings.clock_offsets_ms or {}).get(host, 0)
            parser = self._parsers[tail.number] = ShardParser(
                self.store.ids, self.store.batch, tail.damage, tail.number, offset_ms
            )
        return parser

    def _path_of(self, number: int) -> Path | None:
        tails = self._folders[formats.SAMPLE_DIR].tails.values()
        return next((tail.path for tail in tails if tail.number == number), None)

    def _tails(self) -> Iterator[Tail]:
        for folder in self._folders.values():
            yield from folder.tails.values()

    # Figures

    def _snapshot(self, now_ms: int, depth: Depth) -> Snapshot:
        self.store.flush()
        self._fold.update()
        job = self._job()
        job_number = -1 if job is None else job
        span = self.store.job_span.get(job_number)
        running, ended = self._state(now_ms, span)
        flow_now_ms = now_ms if running or span is None else span[1]
        flow = self._flow
        if flow is None or job_number != self._flow_job:
            depth = Depth.FLOW
        if depth >= Depth.STEPS:
            self._blocks.update(job_number)
        if flow is None or depth >= Depth.FLOW:
            self._flow_job = job_number
            flow = self._flow = self._blocks.figures(
                FlowSettings(
                    now_ms=flow_now_ms,
                    ended=ended,
                    group_sizes=self._match.group_sizes(job_number),
                    max_staleness=self.settings.max_staleness,
                )
            )
        rows = self._blocks.steps()
        anchors = anchors_of(self.store, self.progress, job_number, rows)
        progress = progress_figures(
            self.progress,
            self._fold,
            anchors,
            now_ms=now_ms,
            running=running,
            kept=self._runs,
        )
        steps = with_windows(rows, progress.history)
        self._match.update(job_number)
        tails = list(self._tails())
        if ended:
            for tail in tails:
                mark_torn(tail)
        damage = self._damage(tails, flow.negative)
        newest = [one for one in (span[1] if span else None, progress.last_line_ms) if one]
        return Snapshot(
            root=self.root,
            now_ms=now_ms,
            running=running,
            job=job_name(self.store, job_number),
            jobs=tuple(sorted(name.decode("utf-8", "replace") for name in self.store.ids.jobs)),
            complete=self.complete,
            read_bytes=sum(tail.pos for tail in tails),
            total_bytes=sum(tail.size for tail in tails),
            num_rows=self.store.num_rows,
            progress=progress,
            flow=flow,
            steps=steps,
            trainer_idle_pct=trainer_idle_pct(steps, progress.history),
            num_trajectories=len(self.trajectories),
            num_with_flow=self._match.num_with_flow,
            damage=damage,
            pending_bytes=sum(tail.behind_bytes for tail in tails if not tail.has_news),
            ignored=self._ignored,
            missing_folders=tuple(n for n, folder in self._folders.items() if not folder.exists),
            last_event_ms=max(newest) if newest else None,
            damaged_files=damaged_files(tails),
            slow_trajectories=self.trajectories.slowest(),
        )

    def _state(self, now_ms: int, span: tuple[int, int] | None) -> tuple[bool, bool]:
        """Whether the run is going on, and whether it is known to have ended."""
        ended = self.settings.ended
        if ended is None and (self.root.parent / RUN_SUMMARY_FILE).is_file():
            ended = True
        if ended:
            return False, True
        written_ms = max((tail.mtime_s for tail in self._tails()), default=0.0) * 1000.0
        quiet = now_ms - written_ms > LIVE_S * 1000.0
        newest = max(self.progress.newest_ms, span[1] if span else 0) or written_ms
        return now_ms - newest <= LIVE_S * 1000.0, quiet and ended is None

    def _job(self) -> int | None:
        return choose_job(self.store, self.selected_job)

    def _damage(self, tails: list[Tail], negative: int) -> Damage:
        parts = [tail.damage for tail in tails]
        if self._times is not None:
            parts.append(self._times.damage)
        own = Damage(
            negative=negative,
            ignored_files=len(self._ignored),
            rewritten=self._rewritten,
            unreadable=sum(folder.unreadable for folder in self._folders.values()),
            over_limit=self.store.ids.over_limit,
        )
        return total([*parts, self.store.damage, own])
