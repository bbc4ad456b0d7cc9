"""The TensorBoard backend of the training logger: a bounded queue, one thread, one event file.

    submit (training thread) --append--> deque (bounded, drops the oldest) --every second-->
        writer thread: encode and write each record, nothing buffered in the process

`write` takes a lock for a few instructions and never waits for the disk. The thread writes at
least every `FLUSH_INTERVAL_S`, so a killed process loses at most that much (the kernel keeps what
was written). A full or failing disk costs records, not training: each lost record is counted, the
first failure of a row is logged, the next batch tries again. The file itself is opened by the
thread, for the same reason.

Life cycle: constructed by the learner, ended by `close(timeout_s)`; a thread that hangs in the
disk is abandoned (daemon), so closing is bounded.
"""

import logging
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from unilab_core.telemetry.event_file import EventFile, ScalarEvent, load_messages

FLUSH_INTERVAL_S = 1.0
QUEUE_RECORDS = 2048
"""About 20 s at 100 records a second; some 10 MB."""

_log = logging.getLogger(__name__)


class TensorBoardSink:
    """Writes each record as one event; see the module docstring for what it promises."""

    def __init__(
        self,
        run_dir: Path,
        purge_step: int | None = None,
        *,
        queue_records: int = QUEUE_RECORDS,
        flush_interval_s: float = FLUSH_INTERVAL_S,
    ) -> None:
        """Start the thread.

        `purge_step`: the first step this session may write; after a resume, readers forget the
        older points from there on.
        """
        load_messages()  # a missing package is the caller's error, not the thread's
        self._run_dir = run_dir
        self._purge_step = purge_step
        self._capacity = queue_records
        self._flush_interval_s = flush_interval_s
        self._lock = threading.Lock()
        self._queue: deque[ScalarEvent] = deque()
        self._batch: deque[ScalarEvent] = deque()
        self._abandoned_count = 0
        self._stop = threading.Event()
        self._failing = False
        self.written_count = 0
        """Records in the file."""
        self.dropped_count = 0
        """Records lost: pushed out of the full queue, or refused by the disk."""
        self.error_count = 0
        """Failed attempts to open or write the file."""
        self._thread = threading.Thread(target=self._run, name="tensorboard-sink", daemon=True)
        self._thread.start()

    def write(self, step: int, wall_time_s: float, scalars: Mapping[str, float]) -> None:
        """Queue one record; pushes the oldest out, counted, when the queue is full."""
        event = ScalarEvent(step=step, wall_time_s=wall_time_s, scalars=scalars)
        with self._lock:
            if len(self._queue) >= self._capacity:
                self._queue.popleft()
                self.dropped_count += 1
            self._queue.append(event)

    def close(self, timeout_s: float) -> bool:
        """Write what is queued and end the thread; False when the time did not suffice."""
        self._stop.set()
        self._thread.join(timeout_s)
        # A writer that is stuck may still come back, and a second close takes the count back then.
        with self._lock:
            left = len(self._batch) + len(self._queue)
            self.dropped_count += left - self._abandoned_count
            self._abandoned_count = left
        if left:
            _log.warning("%d TensorBoard records are lost: their writer is gone or stuck", left)
        return not self._thread.is_alive() and left == 0

    def _run(self) -> None:
        file: EventFile | None = None
        stopping = False
        while not stopping:
            stopping = self._stop.wait(self._flush_interval_s)
            with self._lock:
                batch = self._batch = self._queue
                self._queue = deque()
            try:
                if file is None:
                    file = EventFile(self._run_dir, self._purge_step)
                # One system call a record: it hands the interpreter back to the training thread.
                while batch:
                    file.write(batch[0])
                    batch.popleft()
                    self._count_success()
            except OSError as error:
                self._count_failure(batch, error)
        if file is not None:
            file.close()

    def _count_failure(self, lost: deque[ScalarEvent], error: OSError) -> None:
        self.error_count += 1
        with self._lock:
            self.dropped_count += len(lost)
            lost.clear()
        if not self._failing:
            self._failing = True
            _log.warning("TensorBoard events cannot be written, training goes on: %s", error)

    def _count_success(self) -> None:
        self.written_count += 1
        if self._failing:
            self._failing = False
            _log.warning(
                "TensorBoard events are written again; %d records lost so far", self.dropped_count
            )
