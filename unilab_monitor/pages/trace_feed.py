"""The thread that owns the reader of a trace directory.

Every 1.25 s it reads what is new and makes a snapshot of it; in between it looks at the progress
lines alone, whose arrival is their time. Questions are answered at once. Where nothing changed no
snapshot is made, but every five seconds while the run goes on (idle times grow); of a run that has
ended nothing is sent again. Figures that the page in sight does not show are made anew when it is
chosen, else every 15 s. While it catches up with what is on disk, snapshots take about a ninth of
its time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from textual.message import Message

from unilab_core.telemetry.rl_trace.reader import TraceReader
from unilab_core.telemetry.rl_trace.snapshot import Depth
from unilab_monitor.pages.trace_messages import FeedFailed, SnapshotReady, StepReady, TraceReady

THREAD_NAME = "trace-feed"
PROGRESS_S = 0.5
ROUND_S, MAX_ROUND_S = 1.25, 1.4
"""Everything is read this often; less often only where listing the files takes long."""
READ_S = 0.3
SAVE_S = 5.0
IDLE_S = 5.0
"""Figures are made anew this often although nothing was written: idle times grow."""
WHOLE_S = 15.0
"""Figures that are not in sight are made anew this often."""
CATCH_UP_SHARE, LIVE_SHARE = 8.0, 1.0
"""A snapshot that took t seconds is followed by at least this many t without one."""

Question = Callable[[TraceReader], Message]


class TraceFeed:
    """Reads in the background; `post` must be safe to call from another thread."""

    def __init__(self, reader: TraceReader, post: Callable[[Message], object]) -> None:
        self._reader = reader
        self._post = post
        self._questions: deque[Question] = deque()
        self._wake = threading.Event()
        self._stop = False
        self._depth = Depth.FLOW
        self._going = threading.Event()
        self._going.set()
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def pause(self) -> None:
        """Read nothing until `resume`."""
        self._going.clear()

    def resume(self) -> None:
        """Read on."""
        self._going.set()
        self._wake.set()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Keep the arrival times and end."""
        self._stop = True
        self._going.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def want(self, depth: Depth) -> None:
        """Say which figures are in sight; more than before are made at once."""
        self._depth = depth
        self._wake.set()

    def ask_trace(self, name: str) -> None:
        """Ask for the trace and the trajectory of `<uid>/<n>`; answered by TraceReady."""
        self._ask(lambda reader: TraceReady(name, reader.trace(name), *reader.trajectory(name)))

    def ask_step(self, step: int) -> None:
        """Ask for the transitions of a step; answered by StepReady."""
        self._ask(lambda reader: StepReady(step, reader.transitions_of_step(step)))

    def next_job(self) -> None:
        """Show the next job of the directory."""

        def choose(reader: TraceReader) -> Message:
            snapshot = reader.snapshot()
            jobs = snapshot.jobs
            if jobs:
                at = jobs.index(snapshot.job) if snapshot.job in jobs else -1
                reader.selected_job = jobs[(at + 1) % len(jobs)]
            return SnapshotReady(reader.snapshot())

        self._ask(choose)

    def _ask(self, question: Question) -> None:
        self._questions.append(question)
        self._wake.set()

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as error:  # noqa: BLE001  a thread's entry point: the pages must say it
            self._post(FeedFailed(f"{type(error).__name__}: {error}"))

    def _follow(self) -> None:
        shown, running = None, True
        complete, next_read = False, 0.0
        next_snapshot, next_save = 0.0, time.monotonic() + SAVE_S
        depth = wanted = Depth.FLOW
        next_whole = 0.0
        while not self._stop:
            if not self._going.is_set():
                self._reader.save()
                self._going.wait()
                continue
            started = time.monotonic()
            if complete and started < next_read:
                self._reader.poll_progress()
            else:
                complete = self._reader.poll(READ_S)
                # Many thousand files take a while to list: stay at a few percent of one core.
                took_s = time.monotonic() - started
                next_read = started + min(max(ROUND_S, 20.0 * took_s), MAX_ROUND_S)
            while self._questions and not self._stop:
                self._post(self._questions.popleft()(self._reader))
            now = time.monotonic()
            state = self._state()
            in_sight = self._depth
            idle = (running and now >= next_snapshot + IDLE_S) or (
                wanted < Depth.FLOW and now >= next_whole
            )
            deeper = complete and in_sight > depth
            if deeper or (now >= next_snapshot and (state != shown or idle)):
                wanted = in_sight if complete and now < next_whole else Depth.FLOW
                snapshot = self._reader.snapshot(depth=wanted)
                depth = in_sight
                if wanted == Depth.FLOW:
                    next_whole = now + WHOLE_S
                share = LIVE_SHARE if complete else CATCH_UP_SHARE
                took = time.monotonic() - now
                shown, next_snapshot = state, now + took * (1.0 + share)
                if complete:
                    next_snapshot = max(next_snapshot, next_read)
                running = snapshot.running
                self._post(SnapshotReady(snapshot))
            if now >= next_save:
                self._reader.save()
                next_save = now + SAVE_S
            if complete:
                until = max(next_read - time.monotonic(), 0.0)
                self._wake.wait(until - PROGRESS_S if until > 1.5 * PROGRESS_S else until)
            self._wake.clear()
        self._reader.save()

    def _state(self) -> tuple[object, ...]:
        reader = self._reader
        return (
            reader.store.num_rows,
            len(reader.progress.kind),
            reader.progress.newest_ms,
            len(reader.trajectories),
            reader.complete,
            reader.selected_job,
        )
