"""`learner_result.json`: the learner's share of run_summary.json, runtime manifest included."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unilab_core.config.config import Config
from unilab_core.contracts import EnvSpec
from unilab_core.telemetry.runtime_manifest import MANIFEST_SCHEMA_VERSION
from unilab_core.telemetry.training_logger import TrainingLogger
from unilab_learner.saver import Progress, Saver

INFERENCE_RING_CAPACITY = 1
"""One request in flight per collector."""
_MAX_GAUGES = ("max_in_flight", "max_publication_lag")


@dataclass(kw_only=True, slots=True, frozen=True)
class ResultParts:
    """What the result is made of, read after the collector has left."""

    reason: str
    config: Config
    spec: EnvSpec
    logger: TrainingLogger
    saver: Saver
    transport: Mapping[str, Any]
    """Sections of the manifest that the algorithm's transport has."""
    progress: Progress
    first_env_steps: int
    """Where the step axis of this session began: above 0 in a resumed run."""
    wall_s: float


def session_result(parts: ResultParts) -> dict[str, Any]:
    """Plain values; absent figures are None."""
    saver = parts.saver
    last = saver.last_checkpoint
    return {
        **parts.logger.summary(),
        # The closing drain stores the tick that the last logged iteration had still in flight.
        "completed_iterations": parts.progress.iteration,
        "total_env_steps": parts.progress.env_steps,
        "first_env_steps": parts.first_env_steps,
        "reason": parts.reason,
        "last_checkpoint": None if last is None else str(last),
        "num_failed_saves": saver.num_failed_saves,
        "training_wall_time_sec": parts.wall_s,
        "runtime_manifest": {
            "schema_version": MANIFEST_SCHEMA_VERSION,
            "collector_metrics_interval": parts.config.training.collector_metrics_interval,
            "collector_backend_device": parts.spec.backend_device,
            **parts.transport,
        },
    }


def inference_sections(
    flight: Mapping[str, int], last_reports: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The manifest's sections about the inference slot, from its gauges and the last reports."""
    return {
        "inference_ring_capacity": INFERENCE_RING_CAPACITY,
        "inference_flight": {**flight, **_flight_maxima(last_reports)},
    }


def _flight_maxima(reports: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Largest values that the last reports tell; 0 where there was no report."""
    maxima: dict[str, int] = dict.fromkeys(_MAX_GAUGES, 0)
    for report in reports:
        for name in _MAX_GAUGES:
            value = report.get("inference", {}).get(f"Perf/collector_inference_{name}", 0)
            maxima[name] = max(maxima[name], int(value))
    return maxima
