"""The runtime manifest of a run, put together when it has ended, however it ended.

    stable fields   configuration, env_spec.json, the gauges of the segments as they stand after the
                    last process has left, the maxima of the last collector report
    diagnostics     facts-<role>-<rank>.json of the children, thread plan, memory, versions, CPU
    shutdown        who ended the run, where and why (`shutdown.py`)

The launcher owns the segments, so the gauges are there even when a child was killed; what the
learner itself wrote into learner_result.json completes them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from unilab_core.config.on_policy import AppoConfig
from unilab_core.launch.job_files import JobFiles
from unilab_core.launch.outcome import Outcome
from unilab_core.launch.plan import ROLES
from unilab_core.launch.shutdown import cleanup_error, shutdown_record
from unilab_core.run.machine import cpu_facts, software_versions
from unilab_core.telemetry.runtime_manifest import MANIFEST_SCHEMA_VERSION, manifest_problems
from unilab_ipc.errors import RecordInvalid
from unilab_ipc.inference_slot import InferenceSlot
from unilab_ipc.replay_ingress import ReplayIngress
from unilab_ipc.rollout_ring import RolloutRing

INFERENCE_RING_CAPACITY = 1
"""One request in flight per collector."""

_GAUGE_PREFIX = "Perf/collector_inference_"
_WAIT_TAG = "Perf/collector_learner_action_wait_ms"
_NOT_READ_AGAIN = ("max_in_flight", "max_publication_lag", "max_action_backlog")

Records = Sequence[Mapping[str, Any]]


def build_manifest(
    files: JobFiles, outcome: Outcome, learner_share: Mapping[str, Any], collector_records: Records
) -> dict[str, Any]:
    """The whole mapping.

    Args:
        files: segments still mapped, children gone.
        outcome: how the run ended.
        learner_share: `runtime_manifest` of learner_result.json; empty where there is none.
        collector_records: collector ring, oldest first.
    """
    facts = {role: _facts(files, role) for role in ROLES}
    transport = _transport(files, collector_records)
    manifest: dict[str, Any] = {
        "schema_version": MANIFEST_SCHEMA_VERSION,
        "collector_metrics_interval": files.config.training.collector_metrics_interval,
        **_backend_device(files),
        **_diagnostics(files, facts),
    }
    for name, value in {**learner_share, **transport}.items():
        share = learner_share.get(name)
        if isinstance(value, Mapping) and isinstance(share, Mapping):
            manifest[name] = {**share, **value}
        else:
            manifest[name] = value
    shutdown = shutdown_record(files, outcome, transport)
    # A manifest that breaks its own contract must not pass for a good one.
    for problem in manifest_problems(
        manifest, algo=files.config.algo.algo, completed=outcome.status == "completed"
    ):
        shutdown["cleanup"]["errors"].append(cleanup_error("ManifestError", problem))
    return {**manifest, "shutdown": shutdown}


def _transport(files: JobFiles, records: Records) -> dict[str, Any]:
    """Sections of the segments that exist, read now."""
    found: dict[str, Any] = {}
    slot = files.find_segment("inference_slot")
    if slot is not None:
        found["inference_ring_capacity"] = INFERENCE_RING_CAPACITY
        # What the collector reported last, overlaid with what the slot says after the end.
        found["inference_flight"] = {**_reported_flight(records), **InferenceSlot(slot).flight()}
    ingress = files.find_segment("replay_ingress")
    if ingress is not None:
        found["replay_ingress"] = ReplayIngress(ingress).gauges()
    rollouts = files.find_segment("rollout_ring")
    if rollouts is not None:
        found["rollout_ring"] = RolloutRing(rollouts).gauges()
    return found


def _reported_flight(records: Records) -> dict[str, float]:
    flight: dict[str, float] = dict.fromkeys(_NOT_READ_AGAIN, 0)
    for record in reversed(records):
        gauges = record.get("inference") or record.get("flight")
        if isinstance(gauges, Mapping) and gauges:
            for tag, value in gauges.items():
                flight[str(tag).removeprefix(_GAUGE_PREFIX)] = int(value)
            wait_ms = (record.get("timing") or {}).get(_WAIT_TAG)
            return flight if wait_ms is None else {**flight, "wait_time_ms": wait_ms}
    return flight


def _backend_device(files: JobFiles) -> dict[str, str | None]:
    """Absent when no environment was ever built: null would claim that none is needed."""
    try:
        spec = files.env_spec()
    except RecordInvalid:
        spec = None
    return {} if spec is None else {"collector_backend_device": spec.backend_device}


def _diagnostics(files: JobFiles, facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    config, threads = files.config, files.threads
    is_appo = isinstance(config.algo, AppoConfig)
    learner, collector = facts["learner"], facts["collector"]
    return {
        "inference_owner": "collector" if is_appo else "learner",
        "transport": [kind for kind, _ in files.segment_sizes()],
        "settings": learner.get("settings", {}),
        "threads": {
            "planned": {"collector": threads.collector, "learner": threads.learner},
            "learner": learner.get("threads"),
            "collector": collector.get("threads"),
        },
        "shared_memory_bytes": dict(files.segment_sizes()),
        "data_parallel": {"world_size": 1, "backend": None},
        "seeds": {
            "root": config.algo.seed,
            "learner": learner.get("seeds"),
            "collector": collector.get("seeds"),
        },
        "versions": software_versions(),
        "cpu": cpu_facts(),
    }


def _facts(files: JobFiles, role: str) -> dict[str, Any]:
    try:
        return files.folder.read_json(f"facts-{role}-0.json") or {}
    except RecordInvalid:
        return {}
