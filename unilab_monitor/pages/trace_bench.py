"""How fast the pages get their figures: `python -m unilab_monitor.pages.trace_bench`.

Generates a trace directory (or takes a given one), reads it through the feed that the pages use,
then appends events and waits until a snapshot holds them. One JSON object on the last line:

    first_s      until the first figures            updates     snapshots until everything was read
    complete_s   until everything was read          cpu_s       processor time of that
    peak_mib     largest resident size              snapshot_s  making the figures once more
    appended_s   append to figures, worst and median

With `--live-rows-per-s` it measures instead what each page costs while that many rows arrive
(`live_bench`).
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from textual.message import Message

from unilab_core.telemetry.rl_trace import formats
from unilab_core.telemetry.rl_trace.demo_live import LiveRun, LiveSettings
from unilab_core.telemetry.rl_trace.demo_trace import EVENTS_PER_TRAJECTORY, TRAJECTORIES_PER_STEP
from unilab_core.telemetry.rl_trace.reader import TraceReader
from unilab_core.telemetry.rl_trace.snapshot import Snapshot
from unilab_monitor.pages.live_bench import LiveBenchSettings, measure_live
from unilab_monitor.pages.trace_feed import TraceFeed
from unilab_monitor.pages.trace_messages import FeedFailed, SnapshotReady

LIMIT_S = 600.0
NUM_APPENDS = 20


class Pages:
    """Stands in the place of the pages: takes what the feed posts."""

    def __init__(self) -> None:
        self._snapshots: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def post(self, message: Message) -> None:
        """What the feed calls."""
        self._snapshots.put(message)

    def next(self) -> Snapshot:
        """The next snapshot.

        Raises:
            RuntimeError: the feed has failed.
            queue.Empty: nothing came for ten minutes.
        """
        while True:
            message = self._snapshots.get(timeout=LIMIT_S)
            if isinstance(message, FeedFailed):
                raise RuntimeError(message.reason)
            if isinstance(message, SnapshotReady):
                return message.snapshot


def measure(root: Path) -> dict[str, float | int]:
    """Read, then append and wait."""
    pages = Pages()
    reader = TraceReader(root)
    feed = TraceFeed(reader, pages.post)
    started, started_cpu_s = time.monotonic(), time.process_time()
    feed.start()
    try:
        first_s, updates = None, 0
        while True:
            snapshot = pages.next()
            updates += 1
            if first_s is None and snapshot.num_rows:
                first_s = time.monotonic() - started
            if snapshot.complete:
                break
        complete_s = time.monotonic() - started
        cpu_s = time.process_time() - started_cpu_s
        lags = [
            _append_and_wait(root, pages, snapshot.num_rows + 1 + n) for n in range(NUM_APPENDS)
        ]
    finally:
        feed.stop()
    before = time.monotonic()
    reader.snapshot()
    return {
        "events": snapshot.num_rows,
        "mib": round(snapshot.total_bytes / 2**20),
        "first_s": round(first_s or 0.0, 2),
        "updates": updates,
        "complete_s": round(complete_s, 2),
        "cpu_s": round(cpu_s, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "snapshot_s": round(time.monotonic() - before, 3),
        "appended_max_s": round(max(lags), 2),
        "appended_p50_s": round(statistics.median(lags), 2),
    }


def _append_and_wait(root: Path, pages: Pages, rows: int) -> float:
    """Seconds from an appended event to figures that hold it; at a time the feed does not know."""
    time.sleep(random.uniform(0.0, 1.5))
    row = formats.sample_row(
        "demo-job",
        f"late-{rows}/0",
        formats.Status.RUNNING,
        time.time_ns() // 1_000_000,
        source="a",
        target="b",
        stage=formats.Stage.ROLLOUT_START,
        global_step=1,
        detail="agent_started",
    )
    path = root / formats.SAMPLE_DIR / "appended-pid1.csv"
    with path.open("a", encoding="utf-8") as file:
        file.write(row + "\n")
    started = time.monotonic()
    while pages.next().num_rows < rows:
        pass
    return time.monotonic() - started


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="measure how fast trace figures appear")
    parser.add_argument("root", type=Path, nargs="?", help="a trace directory; it is appended to")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument(
        "--live-rows-per-s",
        type=float,
        default=0.0,
        help="instead: append this many rows per second and measure what each page costs",
    )
    parser.add_argument("--live-s", type=float, default=30.0, help="seconds per page")
    parser.add_argument("--size", type=_size, default=(120, 40), metavar="COLUMNSxROWS")
    arguments = parser.parse_args()
    if arguments.live_rows_per_s < 0.0 or arguments.live_s <= 0.0:
        parser.error("--live-rows-per-s must be at least 0 and --live-s above 0")
    with tempfile.TemporaryDirectory(prefix="unilab-trace-") as folder:
        root = arguments.root
        if root is None:
            root = Path(folder) / "run" / "rl_trace"
            size = ["--events", str(arguments.events), "--shards", str(arguments.shards)]
            module = "unilab_core.telemetry.rl_trace.demo_trace"
            subprocess.run([sys.executable, "-m", module, str(root), *size], check=True)
        if arguments.live_rows_per_s:
            print(json.dumps(_live(root, Path(folder), arguments)))
        else:
            print(json.dumps(measure(root)))


def _live(root: Path, folder: Path, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    first_step = arguments.events // (EVENTS_PER_TRAJECTORY * TRAJECTORIES_PER_STEP) + 1
    live = LiveSettings(rows_per_s=arguments.live_rows_per_s, first_step=first_step)
    # Some time ago already, so that as many trajectories end as begin.
    run = LiveRun(root, live, int(time.time() * 1000) - 40_000)
    columns, rows = arguments.size
    settings = LiveBenchSettings(live_s=arguments.live_s, columns=columns, rows=rows)
    return measure_live(root, run, folder, settings)


def _size(text: str) -> tuple[int, int]:
    columns, _, rows = text.partition("x")
    if not (columns.isdigit() and rows.isdigit()):
        raise argparse.ArgumentTypeError(f"expected COLUMNSxROWS such as 120x40, got {text!r}")
    return int(columns), int(rows)


if __name__ == "__main__":
    main()
