"""``unilab-bench slot``: what one inference round trip costs beyond waking the other process.

Two processes. In alternating blocks they exchange

    (a) bare doorbell rings,
    (b) rings with the copies of a tick on both sides, without any protocol,
    (c) whole requests: copies, request published, answer published, waits that watch for a stop.

The copies cost ``p50(b) - p50(a)``: measured where they happen, on lines that the other core has
just written. The promise is ``p50(c) <= 1.25 * p50(a) + copies``. Each block of (c) is compared
with the blocks of (a) and (b) right before it, and the reported ratio is the median of the blocks:
what else the machine does for a while then moves one ratio, not the result.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from unilab_core.tools.bench.report import BenchReport
from unilab_ipc.doorbell import Doorbell
from unilab_ipc.inference_slot import InferenceSlot
from unilab_ipc.memory import Segment, create_segment, open_segment
from unilab_ipc.names import new_run_id, segment_name
from unilab_ipc.peers import Peer, process_start_ticks
from unilab_ipc.segments import INFERENCE_SLOT
from unilab_ipc.waiting import Waiter

PROMISED_FACTOR = 1.25
OBS_WIDTH, CRITIC_WIDTH, ACTION_WIDTH = 49, 52, 12  # go2_joystick_flat
TIMEOUT_S = 30.0
BELLS = ("bare-near", "bare-far", "collector", "learner")
"""Two pairs: a ring that (c) leaves behind would set (a) and (b) out of step."""


def run(*, num_envs: Sequence[int], blocks: int, block_trips: int) -> BenchReport:
    """Measure each width; one row per number of environments.

    Args:
        num_envs: environments per row.
        blocks: alternating blocks of each kind.
        block_trips: round trips per block.
    """
    rows = [_measure(envs, blocks, block_trips) for envs in num_envs]
    settings = {"blocks": blocks, "block_trips": block_trips, "factor": PROMISED_FACTOR}
    return BenchReport(
        bench="slot", settings=settings, rows=rows, ok=all(row["ratio"] <= 1.0 for row in rows)
    )


def _measure(envs: int, blocks: int, block_trips: int) -> dict:
    dims = _dims(envs)
    name = segment_name(new_run_id(), "inference_slot", 0)
    with tempfile.TemporaryDirectory() as folder:
        for bell in BELLS:
            Doorbell.create(Path(folder, bell)).close()
        segment = create_segment(INFERENCE_SLOT, name, dims)
        command = [sys.executable, "-m", __name__, name, str(envs), folder, str(blocks)]
        echo = subprocess.Popen([*command, str(block_trips)])
        try:
            bells = [Doorbell.open(Path(folder, bell)) for bell in BELLS]
            peer = _peer("learner", echo.pid)
            bare, copied, trips = _drive(segment, bells, peer, blocks, block_trips)
            if echo.wait(timeout=TIMEOUT_S) != 0:
                raise RuntimeError(f"the echo process failed with exit code {echo.returncode}")
        finally:
            echo.kill()
            echo.wait()
            segment.unlink()
            segment.close()
    bare_us, with_copies_us, trip_us = (
        np.median(np.reshape(kind, (blocks, block_trips)), axis=1) / 1e3
        for kind in (bare, copied, trips)
    )
    copy_us = with_copies_us - bare_us
    return {
        "envs": envs,
        "p50_us": float(np.median(trip_us)),
        "p99_us": float(np.percentile(trips, 99)) / 1e3,
        "copy_us": float(np.median(copy_us)),
        "bare_p50_us": float(np.median(bare_us)),
        "ratio": float(np.median(trip_us / (PROMISED_FACTOR * bare_us + copy_us))),
    }


def _drive(
    segment: Segment, bells: Sequence[Doorbell], peer: Peer, blocks: int, block_trips: int
) -> tuple[list[int], list[int], list[int]]:
    """The collector's side: round trips in ns of kinds (a), (b) and (c)."""
    near, far, own, other = bells
    port = InferenceSlot(segment).collector_port(other.ring)
    waiter = Waiter(own, [peer], lambda: False)
    poll = _poll_of(near)
    obs = np.ones(port.obs.shape, np.float32)
    critic_obs = np.ones(port.critic_obs.shape, np.float32)
    actions = np.empty(port.actions.shape, np.float32)
    bare: list[int] = []
    copied: list[int] = []
    trips: list[int] = []
    _await_ring(near, poll)  # the echo process is up
    seq = 0
    for _ in range(blocks):
        for _ in range(block_trips):
            start_ns = time.monotonic_ns()
            far.ring()
            _await_ring(near, poll)
            bare.append(time.monotonic_ns() - start_ns)
        for _ in range(block_trips):
            start_ns = time.monotonic_ns()
            port.obs[...] = obs
            port.critic_obs[...] = critic_obs
            far.ring()
            _await_ring(near, poll)
            actions[...] = port.actions
            copied.append(time.monotonic_ns() - start_ns)
        for _ in range(block_trips):
            start_ns = time.monotonic_ns()
            port.obs[...] = obs
            port.critic_obs[...] = critic_obs
            port.publish(seq)
            answered = partial(port.try_response, seq)
            waiter.wait(answered, timeout_s=None, awaits="learner")
            actions[...] = port.actions
            trips.append(time.monotonic_ns() - start_ns)
            seq += 1
    return bare, copied, trips


def _echo(
    segment: Segment, bells: Sequence[Doorbell], peer: Peer, blocks: int, block_trips: int
) -> None:
    """The learner's side of the same three kinds."""
    near, far, other, own = bells
    port = InferenceSlot(segment).learner_port(other.ring)
    waiter = Waiter(own, [peer], lambda: False)
    poll = _poll_of(far)
    actions = np.ones(port.actions.shape, np.float32)
    obs = np.empty(port.obs.shape, np.float32)
    near.ring()
    for _ in range(blocks):
        for _ in range(block_trips):
            _await_ring(far, poll)
            near.ring()
        for _ in range(block_trips):
            _await_ring(far, poll)
            obs[...] = port.obs
            port.actions[...] = actions
            near.ring()
        for _ in range(block_trips):
            seq = waiter.wait(port.try_request, timeout_s=None, awaits="collector")
            obs[...] = port.obs
            port.actions[...] = actions
            port.respond(seq, policy_version=seq)


def _peer(role: str, pid: int) -> Peer:
    """The other process, watched in every wait as in a real job."""
    ticks = process_start_ticks(pid)
    if ticks is None:
        raise RuntimeError(f"the {role}'s process has ended")
    return Peer(role, 0, pid, ticks).open()


def _poll_of(bell: Doorbell) -> select.poll:
    poll = select.poll()
    poll.register(bell.fileno(), select.POLLIN)
    return poll


def _await_ring(bell: Doorbell, poll: select.poll) -> None:
    if not poll.poll(TIMEOUT_S * 1e3):
        raise TimeoutError(f"no ring within {TIMEOUT_S} s")
    bell.drain()


def _dims(envs: int) -> dict[str, int]:
    widths = {"O": OBS_WIDTH, "C": CRITIC_WIDTH, "A": ACTION_WIDTH}
    return {"E": envs, **widths, "R": 0, "L": 0}


def _echo_main(argv: Sequence[str]) -> None:
    name, envs, folder, blocks, block_trips = argv
    segment = open_segment(INFERENCE_SLOT, name, _dims(int(envs)))
    bells = [Doorbell.open(Path(folder, bell)) for bell in BELLS]
    _echo(segment, bells, _peer("collector", os.getppid()), int(blocks), int(block_trips))
    segment.close()


if __name__ == "__main__":
    _echo_main(sys.argv[1:])
