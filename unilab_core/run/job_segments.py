"""The shared segments of one rank: which exist, how large they are, how to attach to them.

The launcher plans them (`ring_segments` before any child runs, `experience_segments` once the
environment is known) and creates them; children attach by the names in launch.json and job.json:

    SAC    inference slot, replay ingress
    PPO    inference slot with the transitions in it
    APPO   rollout ring, policy snapshot

    launch.json  "board": name, "rings": {"learner-0": {"name": ..., "capacity_bytes": ...}, ...}
    job.json     "segments": [{"kind", "name", "rank", "bytes", "fingerprint"}, ...]
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from unilab_core.config.config import Config
from unilab_core.config.on_policy import AppoConfig, PpoConfig
from unilab_core.contracts import EnvSpec
from unilab_ipc.errors import SegmentMissing
from unilab_ipc.heartbeat import board_dims
from unilab_ipc.layout import Layout
from unilab_ipc.memory import Segment, open_segment
from unilab_ipc.metric_queue import COLLECTOR_RING_BYTES, LEARNER_RING_BYTES, ring_dims
from unilab_ipc.segments import (
    HEARTBEAT,
    INFERENCE_SLOT,
    METRIC_QUEUE,
    POLICY_SNAPSHOT,
    REPLAY_INGRESS,
    ROLLOUT_RING,
)

RING_BYTES = {"collector": COLLECTOR_RING_BYTES, "learner": LEARNER_RING_BYTES}


@dataclass(kw_only=True, slots=True, frozen=True)
class SegmentSpec:
    """One segment to create."""

    kind: str
    """Key of `names.KIND_LETTERS`."""
    rank: int
    layout: Layout
    dims: dict[str, int]

    @property
    def size_bytes(self) -> int:
        """Bytes in /dev/shm."""
        return self.layout.size_bytes(self.dims)


def ring_segments(ranks: int = 1) -> tuple[SegmentSpec, ...]:
    """What exists before any child runs: the heartbeat board and the metric rings."""
    specs = [SegmentSpec(kind="heartbeat", rank=0, layout=HEARTBEAT, dims=board_dims(ranks))]
    for rank in range(ranks):
        for role, capacity_bytes in RING_BYTES.items():
            dims = ring_dims(capacity_bytes)
            kind = f"{role}_metrics"
            specs.append(SegmentSpec(kind=kind, rank=rank, layout=METRIC_QUEUE, dims=dims))
    return tuple(specs)


def experience_segments(config: Config, spec: EnvSpec, ranks: int = 1) -> tuple[SegmentSpec, ...]:
    """What carries observations, actions and transitions, sized from the built environment."""
    algo = config.algo
    kinds: dict[str, tuple[Layout, dict[str, int]]] = {}
    if isinstance(algo, AppoConfig):
        kinds["rollout_ring"] = (ROLLOUT_RING, rollout_dims(algo, spec))
        kinds["policy_snapshot"] = (POLICY_SNAPSHOT, snapshot_dims(algo, spec))
    else:
        transitions = isinstance(algo, PpoConfig)
        kinds["inference_slot"] = (INFERENCE_SLOT, slot_dims(spec, transitions=transitions))
    if algo.uses_replay:
        depth = config.training.replay_ingress_depth
        kinds["replay_ingress"] = (REPLAY_INGRESS, ingress_dims(spec, depth))
    return tuple(
        SegmentSpec(kind=kind, rank=rank, layout=layout, dims=dims)
        for rank in range(ranks)
        for kind, (layout, dims) in kinds.items()
    )


def slot_dims(spec: EnvSpec, *, transitions: bool = False) -> dict[str, int]:
    """Geometry of the inference slot; only PPO carries transitions in it."""
    rows = {"R": spec.num_envs, "L": len(spec.log_keys)} if transitions else {"R": 0, "L": 0}
    return {**_env_dims(spec), **rows}


def rollout_dims(algo: AppoConfig, spec: EnvSpec) -> dict[str, int]:
    """Geometry of the rollout ring."""
    steps = algo.steps_per_env
    return {**_env_dims(spec), "D": algo.ring_slots, "T": steps, "T1": steps + 1}


def snapshot_dims(algo: AppoConfig, spec: EnvSpec) -> dict[str, int]:
    """Geometry of the policy snapshot: weights, standard deviations, normaliser factors.

    Counted by hand because the launcher has no torch; a test compares with the network itself.
    """
    widths = [spec.obs_width, *algo.hidden_dims, spec.action_width]
    layers = sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(widths))
    factors = 2 * spec.obs_width if algo.obs_normalization else 0
    return {"P": layers + spec.action_width + factors}


def ingress_dims(spec: EnvSpec, depth: int) -> dict[str, int]:
    """Geometry of the replay ingress."""
    return {**_env_dims(spec), "D": depth}


def open_ring(
    launch: dict[str, Any], role: str, rank: int = 0, *, readonly: bool = False
) -> Segment:
    """Attach to the metric ring that `role` writes, as launch.json names it."""
    ring = launch["rings"][f"{role}-{rank}"]
    dims = ring_dims(ring["capacity_bytes"])
    return open_segment(METRIC_QUEUE, ring["name"], dims, readonly=readonly)


def open_slot(
    job: dict[str, Any], spec: EnvSpec, rank: int = 0, *, transitions: bool = False
) -> Segment:
    """Attach to the inference slot named in job.json."""
    dims = slot_dims(spec, transitions=transitions)
    return open_segment(INFERENCE_SLOT, _name(job, "inference_slot", rank), dims)


def open_rollouts(
    job: dict[str, Any], algo: AppoConfig, spec: EnvSpec, rank: int = 0
) -> tuple[Segment, Segment]:
    """Attach to the rollout ring and the policy snapshot named in job.json."""
    return (
        open_segment(ROLLOUT_RING, _name(job, "rollout_ring", rank), rollout_dims(algo, spec)),
        open_segment(
            POLICY_SNAPSHOT, _name(job, "policy_snapshot", rank), snapshot_dims(algo, spec)
        ),
    )


def open_ingress(job: dict[str, Any], spec: EnvSpec, depth: int, rank: int = 0) -> Segment:
    """Attach to the replay ingress named in job.json."""
    name = _name(job, "replay_ingress", rank)
    return open_segment(REPLAY_INGRESS, name, ingress_dims(spec, depth))


def _env_dims(spec: EnvSpec) -> dict[str, int]:
    widths = {"O": spec.obs_width, "C": spec.critic_obs_width, "A": spec.action_width}
    return {"E": spec.num_envs, **widths}


def _name(job: dict[str, Any], kind: str, rank: int) -> str:
    for segment in job["segments"]:
        if segment["kind"] == kind and segment["rank"] == rank:
            return segment["name"]
    raise SegmentMissing(f"{kind} of rank {rank}")
