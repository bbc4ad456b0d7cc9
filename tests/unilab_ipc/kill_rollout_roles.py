"""The two roles of `test_kill_rollout_e2e`: rollouts one way, policies the other.

Every rollout carries the policy version it was made with and is checksummed; every policy is a
constant vector, so that a mixture of two shows at once.
"""

import sys

import kill_roles
import numpy as np
from kill_roles import Role

from unilab_ipc.heartbeat import board_dims
from unilab_ipc.memory import open_segment
from unilab_ipc.names import segment_name
from unilab_ipc.policy_snapshot import SnapshotReader, SnapshotWriter, snapshot_dims
from unilab_ipc.rollout_ring import RolloutRing, rollout_dims
from unilab_ipc.segments import HEARTBEAT, POLICY_SNAPSHOT, ROLLOUT_RING

ROLLOUT_DIMS = rollout_dims(
    slots=2, steps=4, num_envs=8, obs_width=12, critic_obs_width=3, action_width=2
)
SNAPSHOT_DIMS = snapshot_dims(50_001)
TABLES = {
    "heartbeat": (HEARTBEAT, board_dims(1)),
    "rollout_ring": (ROLLOUT_RING, ROLLOUT_DIMS),
    "policy_snapshot": (POLICY_SNAPSHOT, SNAPSHOT_DIMS),
}


def run_collector(role: Role, ticks: int) -> None:
    ring_name = segment_name(role.run_id, "rollout_ring", 0)
    ring = RolloutRing(open_segment(ROLLOUT_RING, ring_name, ROLLOUT_DIMS), debug=True)
    snapshot_name = segment_name(role.run_id, "policy_snapshot", 0)
    reader = SnapshotReader(
        open_segment(POLICY_SNAPSHOT, snapshot_name, SNAPSHOT_DIMS, readonly=True)
    )
    producer = ring.producer(role.ring_peer)
    rng = np.random.default_rng(0)
    version = -1
    for tick in range(ticks):
        snapshot = reader.try_fetch()
        if snapshot is not None:
            assert snapshot.version > version, "an older policy"
            assert (snapshot.values == snapshot.version % 2**24).all(), "torn policy"
            version = snapshot.version
        slot = role.wait(producer.try_claim, "learner")
        for array in (slot.obs, slot.critic_obs, slot.actions, slot.final_critic_obs):
            kill_roles.stamp(array.reshape(-1, array.shape[-1]), rng)
        slot.reward[...] = tick % 2**24
        slot.set_versions(version, tick)
        producer.commit()
        role.beat.advance()


def run_learner(role: Role, ticks: int, report: dict[str, int]) -> None:
    ring_name = segment_name(role.run_id, "rollout_ring", 0)
    ring = RolloutRing(open_segment(ROLLOUT_RING, ring_name, ROLLOUT_DIMS))
    snapshot_name = segment_name(role.run_id, "policy_snapshot", 0)
    writer = SnapshotWriter(
        open_segment(POLICY_SNAPSHOT, snapshot_name, SNAPSHOT_DIMS), role.ring_peer
    )
    consumer = ring.consumer(role.ring_peer)
    newest = -1
    values = np.zeros(SNAPSHOT_DIMS["P"], np.float32)
    while report["consumed"] < ticks:
        values[...] = report["consumed"] % 2**24
        writer.publish(values, report["consumed"])
        slot = role.wait(consumer.try_acquire, "collector")
        assert slot.seq == slot.normaliser_version == report["consumed"]
        assert newest <= slot.policy_version <= report["consumed"]
        newest = slot.policy_version
        assert (slot.reward == slot.seq % 2**24).all()
        for array in (slot.obs, slot.critic_obs, slot.actions, slot.final_critic_obs):
            kill_roles.check(array.reshape(-1, array.shape[-1]))
        consumer.release()
        report["consumed"] += 1
        role.beat.advance()


if __name__ == "__main__":
    sys.exit(kill_roles.main(run_collector, run_learner))
