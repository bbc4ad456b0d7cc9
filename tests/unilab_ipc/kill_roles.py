"""The two roles of `test_kill_e2e`, as small real processes over the real segments.

    python kill_roles.py ROLE RUN_ID BELL_DIR TICKS [LABEL COUNT]

Every row of every array ends in a checksum of the row. With LABEL, the process kills itself with
SIGKILL the COUNT-th time a protocol step of that name is reached. Prints one JSON line at the end:
exit code 0 after TICKS ticks, 10 when the peer died.
"""

import json
import os
import signal
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from slot_steps import publish_steps, respond_steps

from unilab_ipc.doorbell import Doorbell
from unilab_ipc.errors import PeerDead
from unilab_ipc.heartbeat import HeartbeatBoard, board_dims
from unilab_ipc.inference_slot import CollectorPort, InferenceSlot, LearnerPort
from unilab_ipc.memory import open_segment
from unilab_ipc.metric_queue import RingWriter, ring_dims
from unilab_ipc.names import segment_name
from unilab_ipc.peers import Peer
from unilab_ipc.policy_snapshot import Snapshot, SnapshotReader, SnapshotWriter
from unilab_ipc.replay_ingress import ReplayIngress
from unilab_ipc.segments import HEARTBEAT, INFERENCE_SLOT, METRIC_QUEUE, REPLAY_INGRESS
from unilab_ipc.slot_ring import SlotConsumer, SlotProducer
from unilab_ipc.waiting import Waiter

SLOT_DIMS = {"E": 8, "O": 24, "C": 3, "A": 6, "R": 0, "L": 0}
INGRESS_DIMS = {"D": 2, "E": 8, "O": 24, "C": 3, "A": 6}
METRIC_DIMS = ring_dims(16 << 10)
TABLES = {
    "heartbeat": (HEARTBEAT, board_dims(1)),
    "inference_slot": (INFERENCE_SLOT, SLOT_DIMS),
    "replay_ingress": (REPLAY_INGRESS, INGRESS_DIMS),
    "collector_metrics": (METRIC_QUEUE, METRIC_DIMS),
}
OTHER = {"collector": "learner", "learner": "collector"}
TIMEOUT_S = 60.0


def stamp(rows: np.ndarray, rng: np.random.Generator) -> None:
    """Fill with noise; the last column is a checksum of its row."""
    rows[...] = rng.standard_normal(rows.shape)
    for row in rows:
        row[-1] = zlib.crc32(row[:-1].tobytes()) & 0xFFFF


def check(rows: np.ndarray) -> None:
    for row in rows:
        assert float(row[-1]) == zlib.crc32(row[:-1].tobytes()) & 0xFFFF, "torn row"


def answer(obs: np.ndarray) -> np.ndarray:
    return -obs[:, : SLOT_DIMS["A"]]


def kill_self_at(label: str, count: int) -> None:
    """Replace the production methods by ones that stop at a step and die there."""
    left = [count]

    def run(steps: Iterator[str]) -> None:
        for step in steps:
            if step == label:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

    CollectorPort.publish = lambda self, seq: run(publish_steps(self, seq))
    LearnerPort.respond = lambda self, seq, policy_version, closed=False: run(
        respond_steps(self, seq, policy_version, closed)
    )
    SlotProducer.commit = lambda self: run(self._commit_steps())
    SlotConsumer.release = lambda self: run(self._release_steps())

    def write(self: RingWriter, record: dict[str, object]) -> bool:
        run(self._write_steps(self._packer.pack(record)))
        return True

    RingWriter.write = write
    SnapshotWriter.publish = lambda self, values, version, normaliser_version=-1: run(
        self._publish_steps(values, version, normaliser_version)
    )

    def try_fetch(self: SnapshotReader) -> Snapshot | None:
        found: list[Snapshot] = []
        run(self._fetch_steps(found))
        return found[0] if found else None

    SnapshotReader.try_fetch = try_fetch


class Role:
    """What both roles share: board row, bells, peer, waiter."""

    def __init__(self, role: str, run_id: str, bells: Path) -> None:
        self.run_id = run_id
        board_name = segment_name(run_id, "heartbeat", 0)
        board = HeartbeatBoard(open_segment(HEARTBEAT, board_name, board_dims(1)))
        self.beat = board.role(role, 0)
        bell = Doorbell.open(bells / f"{role}-0.bell")
        peer_bell = Doorbell.open(bells / f"{OTHER[role]}-0.bell")
        self.ring_peer: Callable[[], None] = peer_bell.ring
        self.beat.register()
        self.ring_peer()

        def peer_row() -> Peer | None:
            row = board.row(OTHER[role], 0)
            return None if row.state == "missing" else row.peer()

        alone = Waiter(bell, [], lambda: False, self.beat)
        peer = alone.wait(peer_row, timeout_s=TIMEOUT_S, awaits=OTHER[role]).open()
        self.ring_peer()
        self.waiter = Waiter(bell, [peer], lambda: False, self.beat)

    def wait(self, try_fn: Callable[[], object], awaits: str) -> object:
        return self.waiter.wait(try_fn, timeout_s=TIMEOUT_S, awaits=awaits)


def run_collector(role: Role, ticks: int) -> None:
    slot_name = segment_name(role.run_id, "inference_slot", 0)
    slot = InferenceSlot(open_segment(INFERENCE_SLOT, slot_name, SLOT_DIMS))
    ring_name = segment_name(role.run_id, "replay_ingress", 0)
    ring = ReplayIngress(open_segment(REPLAY_INGRESS, ring_name, INGRESS_DIMS), debug=True)
    metrics_name = segment_name(role.run_id, "collector_metrics", 0)
    metrics = RingWriter(open_segment(METRIC_QUEUE, metrics_name, METRIC_DIMS))
    port, producer = slot.collector_port(role.ring_peer), ring.producer(role.ring_peer)
    rng = np.random.default_rng(0)
    for tick in range(ticks):
        stamp(port.obs, rng)
        port.publish(tick)
        role.wait(lambda tick=tick: port.try_response(tick), "learner")
        assert (port.actions == answer(port.obs)).all(), "actions of another request"
        views = role.wait(producer.try_claim, "learner")
        for array in (views.obs, views.next_obs, views.critic_obs, views.action):
            stamp(array, rng)
        views.reward[...] = tick
        producer.commit()
        metrics.write({"tick": tick, "pad": "x" * (tick % 300)})
        role.beat.advance()


def run_learner(role: Role, ticks: int, report: dict[str, int]) -> None:
    slot_name = segment_name(role.run_id, "inference_slot", 0)
    slot = InferenceSlot(open_segment(INFERENCE_SLOT, slot_name, SLOT_DIMS))
    ring_name = segment_name(role.run_id, "replay_ingress", 0)
    ring = ReplayIngress(open_segment(REPLAY_INGRESS, ring_name, INGRESS_DIMS))
    port, consumer = slot.learner_port(role.ring_peer), ring.consumer(role.ring_peer)

    def drain() -> None:
        while (views := consumer.try_acquire()) is not None:
            assert views.seq == report["consumed"]
            assert (views.reward == views.seq % 2**24).all()
            for array in (views.obs, views.next_obs, views.critic_obs, views.action):
                check(array)
            consumer.release()
            report["consumed"] += 1

    def look() -> int | None:
        drain()
        seq = port.try_request()
        return ticks if seq is None and report["consumed"] == ticks else seq

    while True:
        seq = role.wait(look, "collector")
        if seq == ticks:
            return
        check(port.obs)
        port.actions[...] = answer(port.obs)
        port.respond(seq, policy_version=seq)
        role.beat.advance()


def main(
    collector: Callable[[Role, int], None], learner: Callable[[Role, int, dict[str, int]], None]
) -> int:
    name, run_id, bells, ticks = sys.argv[1:5]
    if len(sys.argv) > 5:
        kill_self_at(sys.argv[5], int(sys.argv[6]))
    role = Role(name, run_id, Path(bells))
    report = {"consumed": 0}
    try:
        if name == "collector":
            collector(role, int(ticks))
        else:
            learner(role, int(ticks), report)
    except PeerDead as error:
        print(json.dumps({**report, "dead": error.role, "pid": error.pid}), flush=True)
        return 10
    print(json.dumps({**report, "dead": None}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(run_collector, run_learner))
