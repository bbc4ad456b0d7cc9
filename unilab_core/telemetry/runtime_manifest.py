"""Runtime manifest 1: the stable fields of `runtime_manifest` in run_summary.json, and their check.

    inference_ring_capacity, inference_flight   where the learner infers (PPO, SAC, FlashSAC)
    replay_ingress                              where there is a replay (SAC, FlashSAC)
    rollout_ring                                APPO
    collector_metrics_interval, collector_backend_device    all

Everything else in the manifest is diagnostics without a contract. One validator for producers and
consumers; it fails closed: a missing, foreign or wrongly typed stable field is a problem, and a
bool is no number. Within version 1 fields may be added; a stable field never changes its name,
type, unit or the meaning of null.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

MANIFEST_SCHEMA_VERSION = 1

FLIGHT_FIELDS = ("queue_depth", "publication_lag", "max_in_flight", "max_publication_lag")
"""Gauges in requests and ticks; `max_*` since the last accepted collector report."""

INGRESS_COUNTERS = (
    "ingress_depth",
    "ingress_slot_rows",
    "published_sequence",
    "release_sequence",
    "occupancy",
    "high_water_occupancy",
    "backpressure_waits",
    "early_returns",
    "dropped_batches",
    "closed_returns",
    "stop_returns",
)
"""Integers; high water and counters belong to the whole run."""

ROLLOUT_COUNTERS = (
    "slots",
    "published_sequence",
    "release_sequence",
    "occupancy",
    "high_water_occupancy",
    "backpressure_waits",
    "dropped_rollouts",
)
WAIT_FIELD = "backpressure_wait_s"

_COUNTERS = {
    "inference_flight": FLIGHT_FIELDS,
    "replay_ingress": INGRESS_COUNTERS,
    "rollout_ring": ROLLOUT_COUNTERS,
}
_SECTIONS: dict[str, tuple[str, ...]] = {
    "ppo": ("inference_flight",),
    "sac": ("inference_flight", "replay_ingress"),
    "flashsac": ("inference_flight", "replay_ingress"),
    "appo": ("rollout_ring",),
}
_FOREIGN_SECTIONS = ("inference_flight", "replay_ingress")
"""What a producer must have that does not name its algorithm."""


class ManifestError(ValueError):
    """A manifest that does not keep the contract of its version; names every broken field."""


def required_sections(algo: str | None) -> tuple[str, ...]:
    """Transport sections that a completed run of this algorithm has."""
    return _FOREIGN_SECTIONS if algo is None else _SECTIONS.get(algo, _FOREIGN_SECTIONS)


def require_manifest(manifest: object, *, algo: str | None, completed: bool) -> None:
    """ManifestError unless every stable field is as promised."""
    problems = manifest_problems(manifest, algo=algo, completed=completed)
    if problems:
        raise ManifestError("; ".join(problems))


def manifest_problems(manifest: object, *, algo: str | None, completed: bool) -> list[str]:
    """What is wrong with a manifest, one line each; empty when it holds.

    Args:
        manifest: `runtime_manifest` as it was read.
        algo: algorithm of the run; None for a producer that does not tell.
        completed: whether the run ended in order, so that every section had to exist.
    """
    if not isinstance(manifest, Mapping):
        return [f"runtime_manifest: expected a mapping, got {type(manifest).__name__}"]
    return list(_problems(manifest, algo, completed))


def is_count(value: object, at_least: int = 0) -> TypeGuard[int]:
    """An integer of at least that much; bool and float are none."""
    return type(value) is int and value >= at_least


def is_seconds(value: object) -> bool:
    """A finite number of seconds, at least 0; bool is none."""
    return type(value) in (int, float) and math.isfinite(value) and value >= 0  # type: ignore[arg-type]


def is_version(value: object, supported: int) -> bool:
    """Exactly the supported integer: a missing version, True, "1" or 1.0 is another one."""
    return type(value) is int and value == supported


def _problems(manifest: Mapping[str, Any], algo: str | None, completed: bool) -> Iterator[str]:
    version = manifest.get("schema_version")
    if not is_version(version, MANIFEST_SCHEMA_VERSION):
        yield f"schema_version: got {version!r}, supported is {MANIFEST_SCHEMA_VERSION}"
    sections = required_sections(algo) if completed else ()
    yield from _positive(manifest, "collector_metrics_interval", required=completed)
    yield from _positive(
        manifest, "inference_ring_capacity", required="inference_flight" in sections
    )
    yield from _backend_device(manifest, completed)
    for name in _COUNTERS:
        if name in manifest:
            yield from _section(name, manifest[name])
        elif name in sections:
            yield f"{name}: missing"
    if "inference_memory_budget" in manifest:
        budget = manifest["inference_memory_budget"]
        count = budget.get("ipc_event_count") if isinstance(budget, Mapping) else None
        if not is_count(count):
            yield f"inference_memory_budget.ipc_event_count: got {count!r}, expected an integer"
    if "backend_diagnostics" in manifest:
        yield from diagnostics_problems(manifest["backend_diagnostics"])


def _positive(manifest: Mapping[str, Any], name: str, *, required: bool) -> Iterator[str]:
    if name not in manifest:
        if required:
            yield f"{name}: missing"
    elif not is_count(manifest[name], 1):
        yield f"{name}: got {manifest[name]!r}, expected an integer above 0"


def _backend_device(manifest: Mapping[str, Any], completed: bool) -> Iterator[str]:
    name = "collector_backend_device"
    if name not in manifest:
        if completed:
            yield f"{name}: missing (null where the backend needs no accelerator)"
        return
    device = manifest[name]
    if device is not None and not (isinstance(device, str) and device):
        yield f"{name}: got {device!r}, expected a name or null"


def _section(name: str, section: object) -> Iterator[str]:
    if not isinstance(section, Mapping):
        yield f"{name}: expected a mapping, got {type(section).__name__}"
        return
    for counter in _COUNTERS[name]:
        if not is_count(section.get(counter)):
            yield f"{name}.{counter}: got {section.get(counter)!r}, expected an integer >= 0"
    if name != "inference_flight" and not is_seconds(section.get(WAIT_FIELD)):
        yield f"{name}.{WAIT_FIELD}: got {section.get(WAIT_FIELD)!r}, expected seconds >= 0"


def diagnostics_problems(payload: object) -> Iterator[str]:
    """Check `backend_diagnostics`: available or a reason, and per optimisation the same."""
    name = "backend_diagnostics"
    if not isinstance(payload, Mapping):
        yield f"{name}: expected a mapping, got {type(payload).__name__}"
        return
    available = payload.get("available")
    if type(available) is not bool:
        yield f"{name}.available: got {available!r}, expected true or false"
    elif not available:
        if not _is_text(payload.get("unavailable_reason")):
            yield f"{name}.unavailable_reason: missing"
    else:
        if not _is_text(payload.get("backend_type")):
            yield f"{name}.backend_type: missing"
        entries = payload.get("diagnostics")
        if not isinstance(entries, Mapping):
            yield f"{name}.diagnostics: expected a mapping, got {type(entries).__name__}"
            return
        for key, entry in entries.items():
            if not _is_diagnostic(entry):
                yield f"{name}.diagnostics.{key}: enabled means no disable_reason, else a reason"


def _is_diagnostic(entry: object) -> bool:
    if not isinstance(entry, Mapping):
        return False
    requested, enabled = entry.get("requested"), entry.get("enabled")
    if type(requested) is not bool or type(enabled) is not bool:
        return False
    reason = entry.get("disable_reason")
    return reason is None if enabled else _is_text(reason)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)
