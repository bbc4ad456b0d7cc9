"""The Weights & Biases backend of the training logger: a bounded queue, a thread, a process.

    submit (training thread) --append--> deque (bounded, drops the oldest)
        --thread--> pipe --> `wandb_process`: imports wandb, starts the run, logs, finishes

The package and whatever it waits for live in the other process: a login that fails, a network that
hangs or a crash cost records, counted, never training. That process gets the records in order, and
leaves by itself: when told to finish, within the time it is given, or when this one has died.

`wandb.json` in the run directory says which run it is, once that is known.
"""

import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack

from unilab_core.config.training import TrainingConfig
from unilab_core.run.json_files import read_json

QUEUE_RECORDS = 2048
SEND_INTERVAL_S = 0.5
KILL_AFTER_S = 1.0
"""Beyond the time it was given."""
MODULE = "unilab_core.telemetry.wandb_process"
INFO_NAME = "wandb.json"
DEFAULT_PROJECT = "unilab"

_log = logging.getLogger(__name__)


def init_arguments(
    training: TrainingConfig, *, job: str, run_id: str, config: Mapping[str, Any]
) -> dict[str, Any]:
    """What `wandb.init` is called with; an unset mode is left to WANDB_MODE."""
    arguments: dict[str, Any] = {
        "project": training.wandb_project or DEFAULT_PROJECT,
        "entity": training.wandb_entity,
        "group": training.wandb_group,
        "job_type": training.wandb_job_type,
        "name": training.wandb_name or job,
        "tags": list(training.wandb_tags),
        "notes": training.wandb_notes,
        "mode": training.wandb_mode,
        "id": run_id,
        "config": dict(config),
    }
    return {name: value for name, value in arguments.items() if value not in (None, [])}


def run_info(run_dir: Path) -> dict[str, Any]:
    """Id, address and mode of the W&B run; empty before it started, or where there is none."""
    return read_json(run_dir / INFO_NAME) or {}


def process_command(run_dir: Path) -> tuple[str, ...]:
    """Starts the process that serves one W&B run; its parent is whoever runs this."""
    return (sys.executable, "-m", MODULE, str(run_dir), str(os.getpid()))


class WandbSink:
    """Sends each record to its own process; see the module docstring for what it promises."""

    def __init__(
        self,
        run_dir: Path,
        arguments: Mapping[str, Any],
        *,
        queue_records: int = QUEUE_RECORDS,
        send_interval_s: float = SEND_INTERVAL_S,
    ) -> None:
        """Start the process and the thread. Called by the main thread, whose end ends both."""
        self.dropped_count = 0
        """Records lost: pushed out of the full queue, or the process had gone."""
        self.sent_count = 0
        """Records handed over."""
        self._capacity = queue_records
        self._interval_s = send_interval_s
        self._lock = threading.Lock()
        self._queue: deque[dict[str, Any]] = deque()
        self._stop = threading.Event()
        self._finish_s = 0.0
        self._gone = False
        self._process = subprocess.Popen(process_command(run_dir), stdin=subprocess.PIPE)
        self._first = {"init": dict(arguments)}
        self._thread = threading.Thread(target=self._run, name="wandb-sink", daemon=True)
        self._thread.start()

    def write(self, step: int, wall_time_s: float, scalars: Mapping[str, float]) -> None:
        """Queue one record; pushes the oldest out, counted, when the queue is full."""
        record = {"step": step, "time_s": wall_time_s, "scalars": dict(scalars)}
        with self._lock:
            if self._gone:
                self.dropped_count += 1
                return
            if len(self._queue) >= self._capacity:
                self._queue.popleft()
                self.dropped_count += 1
            self._queue.append(record)

    def close(self, timeout_s: float) -> bool:
        """Send what is queued and let the process finish; False when the time did not suffice.

        What could not be uploaded stays on disk for `wandb sync`.
        """
        self._finish_s = timeout_s
        self._stop.set()
        self._thread.join(timeout_s)
        try:
            code = self._process.wait(KILL_AFTER_S if self._thread.is_alive() else timeout_s)
        except subprocess.TimeoutExpired:
            _log.warning("W&B did not finish within %.0f s; `wandb sync` sends the rest", timeout_s)
            self._process.kill()
            self._process.wait()
            return False
        return code == 0 and not self._thread.is_alive()

    def _run(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            self._send(self._first)
            stopping = False
            while not stopping:
                stopping = self._stop.wait(self._interval_s)
                self._send_queue()
            self._send({"finish_s": self._finish_s})
            pipe.close()
        except OSError as error:
            with self._lock:
                self._gone = True
                self.dropped_count += len(self._queue)
                self._queue.clear()
            _log.warning("W&B gets nothing any more (%s); training goes on", error)

    def _send_queue(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    return
                record = self._queue.popleft()
            try:
                self._send(record)
            except OSError:
                self.dropped_count += 1
                raise
            self.sent_count += 1

    def _send(self, message: Mapping[str, Any]) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        pipe.write(msgpack.packb(message))
        pipe.flush()
