"""Each rule of a passing soak, by changing one thing of a good run at a time."""

import copy

import pytest
from soak_rig import good_summary

from unilab_core.tools.soak.rules import (
    MONITOR_KINDS,
    PRODUCER_FAILURES,
    Evidence,
    Finding,
    failure_classification,
    failure_reason,
    judge,
)

VERSIONS = [None, 0, 2, "1", 1.0, True]


def appo_summary():
    summary = good_summary()
    summary["algo"] = "appo"
    manifest = summary["runtime_manifest"]
    for name in ("inference_ring_capacity", "inference_flight", "replay_ingress"):
        del manifest[name]
    manifest["rollout_ring"] = {
        "slots": 2, "published_sequence": 6, "release_sequence": 6, "occupancy": 0,
        "high_water_occupancy": 2, "backpressure_waits": 4, "backpressure_wait_s": 1.5,
        "dropped_rollouts": 1, "unread_rollouts": 1, "rollout_rows": 256,
    }  # fmt: skip
    return summary


def changed(path, value, base=None):
    summary = copy.deepcopy(base or good_summary())
    *parents, last = path.split(".")
    target = summary
    for name in parents:
        target = target[name]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return summary


def findings_of(summary, **changes):
    facts = {
        "returncode": 0, "duration_s": 60.0, "min_duration_s": 30.0, "residual": [],
        "summary_exists": True, "summary": summary, **changes,
    }  # fmt: skip
    return judge(Evidence(**facts))


def kinds_of(summary, **changes):
    return [finding.kind for finding in findings_of(summary, **changes)]


@pytest.mark.parametrize("make", [good_summary, appo_summary])
def test_a_good_run_has_no_finding(make):
    assert findings_of(make()) == []
    assert failure_reason([]) is None
    assert failure_classification([], make()["runtime_manifest"]["shutdown"]) is None


def test_a_run_that_does_not_tell_its_algorithm_is_held_to_the_replay_contract():
    assert findings_of(changed("algo", ...)) == []
    foreign = changed("algo", ..., changed("runtime_manifest.replay_ingress", ...))
    assert "schema_violation" in kinds_of(foreign)


def test_ppo_needs_no_ingress_and_an_absent_lag_is_tolerated():
    ppo = changed("algo", "ppo", changed("runtime_manifest.replay_ingress", ...))
    assert findings_of(ppo) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", ["metric_schema_version", "runtime_manifest.schema_version"])
@pytest.mark.parametrize("returncode", [0, 1])
def test_every_other_version_fails_also_in_a_failed_run(path, version, returncode):
    found = findings_of(changed(path, version), returncode=returncode)
    assert any(f.kind == "schema_violation" and "supported is 1" in f.text for f in found)


@pytest.mark.parametrize("path", ["metric_schema_version", "runtime_manifest.schema_version"])
def test_a_missing_version_fails(path):
    assert "schema_violation" in kinds_of(changed(path, ...))


INGRESS_MUTATIONS = [
    ("ingress_depth", 0),
    ("ingress_depth", True),
    ("ingress_depth", -2),
    ("ingress_depth", ...),
    ("ingress_slot_rows", 0),
    ("ingress_slot_rows", 15),
    ("ingress_slot_rows", 16.0),
    ("ingress_slot_rows", 32),
    ("published_sequence", 79),
    ("published_sequence", 81),
    ("published_sequence", "80"),
    ("release_sequence", 79),
    ("release_sequence", 81),
    ("release_sequence", None),
    ("occupancy", 1),
    ("occupancy", -1),
    ("high_water_occupancy", 0),
    ("high_water_occupancy", 3),
    ("high_water_occupancy", None),
    ("backpressure_waits", -1),
    ("backpressure_waits", 1.5),
    ("backpressure_wait_s", -0.5),
    ("backpressure_wait_s", True),
    ("backpressure_wait_s", float("nan")),
    ("backpressure_wait_s", float("inf")),
    ("backpressure_wait_s", "0.25"),
    ("early_returns", 1),
    ("dropped_batches", 1),
    ("closed_returns", 1),
    ("stop_returns", 1),
    ("stop_returns", False),
]


@pytest.mark.parametrize(("field", "value"), INGRESS_MUTATIONS)
def test_each_change_of_the_ingress_fails(field, value):
    found = findings_of(changed(f"runtime_manifest.replay_ingress.{field}", value))
    assert found, "the change went unnoticed"
    assert {finding.kind for finding in found} == {"schema_violation"}
    assert "replay_ingress" in found[0].text or "total_env_steps" in found[0].text


@pytest.mark.parametrize("section", ["gone", 7, []])
def test_an_ingress_that_is_no_mapping_fails(section):
    value = ... if section == "gone" else section
    assert "schema_violation" in kinds_of(changed("runtime_manifest.replay_ingress", value))


def test_drops_that_add_up_are_drops_all_the_same():
    summary = good_summary()
    summary["runtime_manifest"]["replay_ingress"] |= {
        "early_returns": 1, "dropped_batches": 1, "closed_returns": 1,
    }  # fmt: skip
    (finding,) = findings_of(summary)
    assert "dropped_batches: 1 after the end" in finding.text


def test_what_is_left_in_the_ring_is_found_though_the_counters_agree():
    summary = good_summary()
    summary["runtime_manifest"]["replay_ingress"] |= {"release_sequence": 79, "occupancy": 1}
    (finding,) = findings_of(summary)
    assert "occupancy: 1 after the end" in finding.text


@pytest.mark.parametrize("total", [0, -16, None, True, 1280.0, "1280", 1279, 1296, 2560])
def test_the_environment_steps_are_those_that_arrived(total):
    assert "schema_violation" in kinds_of(changed("total_env_steps", total))


def test_a_resumed_run_is_counted_from_where_it_began():
    summary = changed("total_env_steps", 1280 + 640)
    assert kinds_of(summary) == ["schema_violation"]
    assert findings_of({**summary, "first_env_steps": 640}) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slots", 0), ("slots", 1), ("published_sequence", 7), ("release_sequence", 5),
        ("release_sequence", 7), ("occupancy", 1), ("high_water_occupancy", 0),
        ("high_water_occupancy", 3), ("backpressure_wait_s", -1.0), ("dropped_rollouts", 2),
        ("dropped_rollouts", True), ("unread_rollouts", 0), ("rollout_rows", 128),
        ("backpressure_waits", ...),
    ],
)  # fmt: skip
def test_each_change_of_the_rollout_ring_fails(field, value):
    path = f"runtime_manifest.rollout_ring.{field}"
    assert set(kinds_of(changed(path, value, appo_summary()))) == {"schema_violation"}


@pytest.mark.parametrize("name", ["queue_depth", "publication_lag"])
def test_a_request_left_in_flight_fails(name):
    path = f"runtime_manifest.inference_flight.{name}"
    assert kinds_of(changed(path, 1)) == ["schema_violation"]


SHUTDOWN_MUTATIONS = [
    ("classification", "learner_failure"),
    ("classification", "anything"),
    ("classification", None),
    ("classification", ...),
    ("owner", ""),
    ("owner", None),
    ("phase", ""),
    ("phase", 3),
    ("exception", "text"),
    ("exception", {"type": "ValueError"}),
    ("exception", {"type": "ValueError", "message": 3}),
    ("exception", ...),
    ("cleanup", None),
    ("cleanup", {}),
    ("cleanup", {"errors": None}),
    ("cleanup", {"errors": ()}),
    ("cleanup", {"errors": [{"type": "OSError", "message": "busy"}]}),
]


@pytest.mark.parametrize(("field", "value"), SHUTDOWN_MUTATIONS)
def test_each_change_of_the_shutdown_fails(field, value):
    found = findings_of(changed(f"runtime_manifest.shutdown.{field}", value))
    assert [finding.kind for finding in found] == ["shutdown_contract_violation"]


@pytest.mark.parametrize("shutdown", [..., None, "normal_completion"])
def test_a_completed_run_has_a_shutdown(shutdown):
    found = kinds_of(changed("runtime_manifest.shutdown", shutdown))
    assert found == ["shutdown_contract_violation"]


def test_an_exception_that_was_handled_is_allowed():
    exception = {"type": "OSError", "message": "disk full once"}
    assert findings_of(changed("runtime_manifest.shutdown.exception", exception)) == []


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"returncode": 3}, "unknown_failure", "return code 3"),
        ({"returncode": None}, "unknown_failure", "could not be ended"),
        ({"duration_s": 29.9}, "unknown_failure", "expected at least 30 s"),
        ({"residual": ["pid 7 (sleep)"]}, "resource_leak", "left behind: pid 7 (sleep)"),
        ({"summary_exists": False, "summary": None}, "missing_run_summary", "no run_summary"),
        ({"summary": None}, "invalid_run_summary", "not a JSON object"),
        ({"summary": []}, "invalid_run_summary", "not a JSON object"),
    ],
)
def test_what_happened_around_the_run_counts_too(changes, kind, text):
    found = findings_of(changes.pop("summary", good_summary()), **changes)
    assert found[0].kind == kind
    assert text in found[0].text


def test_the_first_cause_is_never_replaced():
    stalled = Finding(kind="timeout/stale_tick", text="no progress for 120.0 s")
    found = findings_of(
        None, first=stalled, returncode=-9, residual=["pid 7 (x)"], summary_exists=False
    )
    reason = failure_reason(found)
    assert reason == (
        "no progress for 120.0 s; return code -9; left behind: pid 7 (x); no run_summary.json"
    )
    assert failure_classification(found, None) == "timeout/stale_tick"


@pytest.mark.parametrize("own", PRODUCER_FAILURES)
def test_the_producers_own_word_wins_over_the_monitors(own):
    found = findings_of(good_summary(), returncode=1)
    assert failure_classification(found, {"classification": own}) == own


@pytest.mark.parametrize("own", ["normal_completion", "nonsense", None, 3, ["learner_failure"]])
def test_an_invalid_word_of_the_producer_does_not_count(own):
    found = findings_of(good_summary(), residual=["pid 7 (x)"])
    assert failure_classification(found, {"classification": own}) == "resource_leak"


def test_a_failed_run_that_calls_itself_normal_breaks_the_contract():
    assert kinds_of(good_summary(), returncode=1) == [
        "unknown_failure", "shutdown_contract_violation",
    ]  # fmt: skip
    honest = changed("runtime_manifest.shutdown.classification", "learner_failure")
    assert kinds_of(honest, returncode=1) == ["unknown_failure"]


def test_a_failed_run_needs_no_complete_manifest_but_a_valid_one():
    early = changed("runtime_manifest.shutdown.classification", "collector_failure")
    for name in ("replay_ingress", "inference_flight", "collector_backend_device"):
        del early["runtime_manifest"][name]
    assert kinds_of(early, returncode=10) == ["unknown_failure"]
    early["runtime_manifest"]["replay_ingress"] = {"ingress_depth": -1}
    assert "schema_violation" in kinds_of(early, returncode=10)


def test_every_kind_that_the_rules_use_is_in_the_vocabulary():
    assert "normal_completion" not in PRODUCER_FAILURES
    assert set(MONITOR_KINDS) >= {"resource_leak", "schema_violation", "unknown_failure"}
