"""The one validator of the manifest's stable fields fails closed."""

import copy
import math

import pytest

from unilab_core.telemetry.runtime_manifest import (
    INGRESS_COUNTERS,
    ManifestError,
    manifest_problems,
    require_manifest,
)

FLIGHT = {"queue_depth": 0, "publication_lag": 0, "max_in_flight": 1, "max_publication_lag": 1}
INGRESS = {**dict.fromkeys(INGRESS_COUNTERS, 0), "backpressure_wait_s": 0.0}
ROLLOUTS = {
    "slots": 2, "published_sequence": 5, "release_sequence": 5, "occupancy": 0,
    "high_water_occupancy": 1, "backpressure_waits": 3, "backpressure_wait_s": 0.25,
    "dropped_rollouts": 1,
}  # fmt: skip


def manifest(algo="sac"):
    base = {
        "schema_version": 1,
        "collector_metrics_interval": 1,
        "collector_backend_device": None,
    }
    if algo == "appo":
        return {**base, "rollout_ring": dict(ROLLOUTS)}
    base |= {"inference_ring_capacity": 1, "inference_flight": dict(FLIGHT)}
    return base if algo == "ppo" else {**base, "replay_ingress": dict(INGRESS)}


def changed(path, value, algo="sac"):
    """A good manifest with one field replaced, or removed (value None stays None)."""
    result = copy.deepcopy(manifest(algo))
    *parents, last = path.split(".")
    target = result
    for name in parents:
        target = target[name]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return result


@pytest.mark.parametrize("algo", ["ppo", "appo", "sac", "flashsac"])
def test_a_good_manifest_of_each_algorithm_passes(algo):
    require_manifest(manifest(algo), algo=algo, completed=True)


def test_added_fields_are_nobodys_business():
    more = {**manifest(), "shutdown": 5, "anything": {"deep": [1]}}
    more["inference_flight"]["action_backlog"] = -7
    assert manifest_problems(more, algo="sac", completed=True) == []


@pytest.mark.parametrize("version", [None, 0, 2, "1", 1.0, True, [1], -1])
@pytest.mark.parametrize("completed", [True, False])
def test_only_the_integer_one_is_version_one(version, completed):
    found = manifest_problems(changed("schema_version", version), algo="sac", completed=completed)
    assert found == [f"schema_version: got {version!r}, supported is 1"]


@pytest.mark.parametrize("bad", [None, [], "text", 1, True])
def test_what_is_no_mapping_is_no_manifest(bad):
    with pytest.raises(ManifestError, match="expected a mapping"):
        require_manifest(bad, algo="sac", completed=False)


@pytest.mark.parametrize(
    ("algo", "path"),
    [
        ("sac", "schema_version"),
        ("sac", "inference_ring_capacity"),
        ("sac", "collector_metrics_interval"),
        ("sac", "collector_backend_device"),
        ("sac", "inference_flight"),
        ("sac", "replay_ingress"),
        ("flashsac", "replay_ingress"),
        ("ppo", "inference_flight"),
        ("appo", "rollout_ring"),
        ("appo", "collector_backend_device"),
        (None, "replay_ingress"),
    ],
)
def test_a_completed_run_has_every_field_of_its_transport(algo, path):
    shape = changed(path, ..., algo or "sac")
    (problem,) = manifest_problems(shape, algo=algo, completed=True)
    assert problem.startswith(path)
    if path != "schema_version":
        assert manifest_problems(shape, algo=algo, completed=False) == []


@pytest.mark.parametrize("completed", [True, False])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("inference_ring_capacity", 0),
        ("inference_ring_capacity", True),
        ("collector_metrics_interval", 0),
        ("collector_metrics_interval", 1.0),
        ("collector_metrics_interval", "1"),
        ("collector_backend_device", ""),
        ("collector_backend_device", 0),
        ("inference_flight", None),
        ("inference_flight", []),
        ("inference_flight.queue_depth", -1),
        ("inference_flight.queue_depth", None),
        ("inference_flight.max_in_flight", False),
        ("inference_flight.publication_lag", 0.0),
        ("inference_flight.max_publication_lag", ...),
        ("replay_ingress", 3),
        *[(f"replay_ingress.{name}", -1) for name in INGRESS_COUNTERS],
        ("replay_ingress.ingress_depth", True),
        ("replay_ingress.backpressure_wait_s", True),
        ("replay_ingress.backpressure_wait_s", -0.1),
        ("replay_ingress.backpressure_wait_s", math.inf),
        ("replay_ingress.backpressure_wait_s", math.nan),
        ("replay_ingress.backpressure_wait_s", "0"),
        ("replay_ingress.backpressure_wait_s", ...),
        ("inference_memory_budget", {}),
        ("inference_memory_budget", {"ipc_event_count": -1}),
        ("inference_memory_budget", {"ipc_event_count": True}),
        ("inference_memory_budget", 7),
        ("backend_diagnostics", 7),
        ("backend_diagnostics", {}),
        ("backend_diagnostics", {"available": 1}),
        ("backend_diagnostics", {"available": False, "unavailable_reason": ""}),
        ("backend_diagnostics", {"available": True, "diagnostics": {}}),
        ("backend_diagnostics", {"available": True, "backend_type": "x", "diagnostics": 1}),
    ],
)
def test_a_field_that_is_there_is_checked_whether_the_run_completed_or_not(path, value, completed):
    (problem,) = manifest_problems(changed(path, value), algo="sac", completed=completed)
    assert problem.startswith(path)


@pytest.mark.parametrize("name", sorted(set(ROLLOUTS)))
def test_the_rollout_ring_is_checked_like_the_ingress(name):
    bad = changed(f"rollout_ring.{name}", -1, "appo")
    (problem,) = manifest_problems(bad, algo="appo", completed=True)
    assert problem.startswith(f"rollout_ring.{name}")


@pytest.mark.parametrize(
    ("entry", "good"),
    [
        ({"requested": True, "enabled": True, "disable_reason": None}, True),
        ({"requested": True, "enabled": False, "disable_reason": "no device"}, True),
        ({"requested": True, "enabled": True, "disable_reason": "no device"}, False),
        ({"requested": True, "enabled": False, "disable_reason": None}, False),
        ({"requested": True, "enabled": False, "disable_reason": ""}, False),
        ({"requested": 1, "enabled": True, "disable_reason": None}, False),
        ({"enabled": True, "disable_reason": None}, False),
        ("on", False),
    ],
)
def test_an_optimisation_is_on_or_has_a_reason(entry, good):
    payload = {"available": True, "backend_type": "warp", "diagnostics": {"cuda_graph": entry}}
    found = manifest_problems({**manifest(), "backend_diagnostics": payload}, algo="sac",
                              completed=True)  # fmt: skip
    assert (found == []) is good
