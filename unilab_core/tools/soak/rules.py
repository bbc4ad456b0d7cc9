"""What a soaked run must fulfil: findings in the order of the rules, none for a run that passed.

    return code 0 | minimum duration | nothing left running | run_summary.json
    | metric schema | manifest schema | requests answered | ingress or rollout ring empty and
    consistent | the manifest's stable fields | an orderly shutdown

A run that failed is still checked for its record: the schemas, the manifest's fields as far as
they exist, and a shutdown that does not call itself normal. The first finding is the cause; later
ones are appended to it and never replace it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unilab_core.telemetry.metric_schema import METRIC_SCHEMA_VERSION
from unilab_core.telemetry.runtime_manifest import (
    INGRESS_COUNTERS,
    MANIFEST_SCHEMA_VERSION,
    ROLLOUT_COUNTERS,
    WAIT_FIELD,
    is_count,
    is_seconds,
    is_version,
    manifest_problems,
    required_sections,
)

NORMAL = "normal_completion"
PRODUCER_FAILURES = (
    "learner_failure",
    "collector_failure",
    "backend_worker_failure",
    "timeout/stale_tick",
    "external_cancellation",
    "unknown_failure",
)
MONITOR_KINDS = (
    "timeout/startup",
    "timeout/stale_tick",
    "external_cancellation",
    "monitor_failure",
    "resource_leak",
    "missing_run_summary",
    "invalid_run_summary",
    "schema_violation",
    "shutdown_contract_violation",
    "unknown_failure",
)
ALGOS = ("ppo", "appo", "sac", "flashsac")

MAX_UNFINISHED_ROLLOUTS = 1
"""APPO's collector is in the middle of one rollout when the learner closes the ring."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Finding:
    """One broken rule."""

    kind: str
    """One of MONITOR_KINDS."""
    text: str


@dataclass(kw_only=True, slots=True, frozen=True)
class Evidence:
    """What is known after the command has ended."""

    returncode: int | None
    """None: it could not be ended."""
    duration_s: float
    min_duration_s: float
    residual: Sequence[str]
    """Processes and shared names that outlived the command, in words."""
    summary_exists: bool
    summary: object
    """Content of run_summary.json; None where it is missing or no JSON."""
    first: Finding | None = None
    """Why the monitor stopped the command, if it did."""


def judge(evidence: Evidence) -> list[Finding]:
    """Every finding, the cause first."""
    findings = [evidence.first] if evidence.first is not None else []
    if evidence.returncode != 0:
        code = evidence.returncode
        text = "the command could not be ended" if code is None else f"return code {code}"
        findings.append(Finding(kind="unknown_failure", text=text))
    completed = not findings
    if completed and evidence.duration_s < evidence.min_duration_s:
        text = f"ran {evidence.duration_s:.1f} s, expected at least {evidence.min_duration_s:g} s"
        findings.append(Finding(kind="unknown_failure", text=text))
    if evidence.residual:
        text = f"left behind: {', '.join(evidence.residual)}"
        findings.append(Finding(kind="resource_leak", text=text))
    findings += _judge_summary(evidence, completed=completed)
    return findings


def failure_reason(findings: Sequence[Finding]) -> str | None:
    """Every text, the cause first; None for a run that passed."""
    return "; ".join(finding.text for finding in findings) or None


def failure_classification(findings: Sequence[Finding], shutdown: object) -> str | None:
    """The producer's own word where it has a valid one, else the monitor's; None when passed."""
    if not findings:
        return None
    own = shutdown.get("classification") if isinstance(shutdown, Mapping) else None
    return own if isinstance(own, str) and own in PRODUCER_FAILURES else findings[0].kind


def shutdown_of(summary: object) -> Mapping[str, Any] | None:
    """`runtime_manifest.shutdown` where there is one."""
    manifest = summary.get("runtime_manifest") if isinstance(summary, Mapping) else None
    shutdown = manifest.get("shutdown") if isinstance(manifest, Mapping) else None
    return shutdown if isinstance(shutdown, Mapping) else None


def _judge_summary(evidence: Evidence, *, completed: bool) -> Iterator[Finding]:
    if not evidence.summary_exists:
        yield Finding(kind="missing_run_summary", text="no run_summary.json")
        return
    summary = evidence.summary
    if not isinstance(summary, Mapping):
        yield Finding(kind="invalid_run_summary", text="run_summary.json: not a JSON object")
        return
    for text in _schema_problems(summary, completed=completed):
        yield Finding(kind="schema_violation", text=text)
    for text in _shutdown_problems(shutdown_of(summary), completed=completed):
        yield Finding(kind="shutdown_contract_violation", text=text)


def _schema_problems(summary: Mapping[str, Any], *, completed: bool) -> Iterator[str]:
    version = summary.get("metric_schema_version")
    if not is_version(version, METRIC_SCHEMA_VERSION):
        yield f"metric_schema_version: got {version!r}, supported is {METRIC_SCHEMA_VERSION}"
    manifest = summary.get("runtime_manifest")
    if not isinstance(manifest, Mapping):
        yield f"runtime_manifest: expected a mapping, got {type(manifest).__name__}"
        return
    version = manifest.get("schema_version")
    if not is_version(version, MANIFEST_SCHEMA_VERSION):
        yield (
            f"runtime_manifest.schema_version: got {version!r},"
            f" supported is {MANIFEST_SCHEMA_VERSION}"
        )
        return
    algo = summary.get("algo") if summary.get("algo") in ALGOS else None
    if completed:
        yield from _flight_problems(manifest.get("inference_flight"))
        sections = required_sections(algo)
        if "replay_ingress" in sections:
            yield from _first_of(_ingress_rules(manifest.get("replay_ingress"), summary))
        if "rollout_ring" in sections:
            yield from _first_of(_rollout_rules(manifest.get("rollout_ring"), summary))
    yield from manifest_problems(manifest, algo=algo, completed=completed)


def _first_of(problems: Iterator[str]) -> Iterator[str]:
    """Only the first: the later rules of a section presume the earlier ones."""
    for problem in problems:
        yield problem
        return


def _flight_problems(flight: object) -> Iterator[str]:
    """Nothing in flight after the end; a transport without the section has nothing to drain."""
    if not isinstance(flight, Mapping):
        return
    for name in ("queue_depth", "publication_lag"):
        if flight.get(name, 0) != 0:
            yield f"inference_flight.{name}: {flight[name]} after the end, expected 0"


def _ingress_rules(ring: object, summary: Mapping[str, Any]) -> Iterator[str]:
    """Every transition arrived exactly once and nothing is left; rules in their order."""
    name = "replay_ingress"
    yield from _typed(name, ring, INGRESS_COUNTERS)
    assert isinstance(ring, Mapping)
    for counter in ("ingress_depth", "ingress_slot_rows"):
        if ring[counter] == 0:
            yield f"{name}.{counter}: got 0, expected more"
    yield from _consistent(name, ring, ring["ingress_depth"])
    if ring["early_returns"] != ring["dropped_batches"]:
        yield f"{name}: early_returns {ring['early_returns']} != dropped {ring['dropped_batches']}"
    if ring["closed_returns"] + ring["stop_returns"] != ring["early_returns"]:
        yield f"{name}: closed_returns + stop_returns != early_returns {ring['early_returns']}"
    for counter in ("occupancy", "dropped_batches", "early_returns"):
        if ring[counter] != 0:
            yield f"{name}.{counter}: {ring[counter]} after the end, expected 0"
    yield from _steps(name, summary, ring["published_sequence"], ring["ingress_slot_rows"])
    if ring["release_sequence"] != ring["published_sequence"]:
        yield f"{name}: published and release_sequence differ"
    if ring["high_water_occupancy"] == 0:
        yield f"{name}.high_water_occupancy: got 0, expected more"


def _rollout_rules(ring: object, summary: Mapping[str, Any]) -> Iterator[str]:
    """The same for APPO, whose collector may be in the middle of one rollout at the end."""
    name = "rollout_ring"
    yield from _typed(name, ring, ROLLOUT_COUNTERS)
    assert isinstance(ring, Mapping)
    if ring["slots"] == 0:
        yield f"{name}.slots: got 0, expected more"
    yield from _consistent(name, ring, ring["slots"])
    if ring["occupancy"] != 0:
        yield f"{name}.occupancy: {ring['occupancy']} after the end, expected 0"
    if ring["dropped_rollouts"] > MAX_UNFINISHED_ROLLOUTS:
        yield f"{name}.dropped_rollouts: {ring['dropped_rollouts']}, expected at most 1 unfinished"
    rows, unread = ring.get("rollout_rows"), ring.get("unread_rollouts", 0)
    if is_count(rows, 1) and is_count(unread):
        yield from _steps(name, summary, ring["release_sequence"] - unread, rows)
    if ring["high_water_occupancy"] == 0:
        yield f"{name}.high_water_occupancy: got 0, expected more"


def _typed(name: str, ring: object, counters: Sequence[str]) -> Iterator[str]:
    if not isinstance(ring, Mapping):
        yield f"{name}: expected a mapping, got {type(ring).__name__}"
        return
    for counter in counters:
        if type(ring.get(counter)) is not int:
            yield f"{name}.{counter}: got {ring.get(counter)!r}, expected an integer"
    if not is_seconds(ring.get(WAIT_FIELD)):
        yield f"{name}.{WAIT_FIELD}: got {ring.get(WAIT_FIELD)!r}, expected seconds >= 0"
    for counter in counters:
        if ring[counter] < 0:
            yield f"{name}.{counter}: got {ring[counter]}, expected at least 0"


def _consistent(name: str, ring: Mapping[str, Any], depth: int) -> Iterator[str]:
    published, released = ring["published_sequence"], ring["release_sequence"]
    occupancy, high_water = ring["occupancy"], ring["high_water_occupancy"]
    if released > published:
        yield f"{name}: release_sequence {released} > published_sequence {published}"
    if occupancy != published - released:
        yield f"{name}.occupancy: {occupancy}, but published - released is {published - released}"
    if occupancy > depth:
        yield f"{name}.occupancy: {occupancy} > {depth} slots"
    if not occupancy <= high_water <= depth:
        yield f"{name}.high_water_occupancy: {high_water}, expected {occupancy} to {depth}"


def _steps(name: str, summary: Mapping[str, Any], items: int, rows: int) -> Iterator[str]:
    """Environment steps of this session = items that passed x rows of each."""
    total = summary.get("total_env_steps")
    if not is_count(total, 1):
        yield f"total_env_steps: got {total!r}, expected an integer above 0"
        return
    before = summary.get("first_env_steps")  # above 0 in a resumed run
    session = total - before if type(before) is int and 0 <= before <= total else total
    if session % rows != 0:
        yield f"total_env_steps: {session} of this run, not a multiple of {rows} rows"
    if items != session // rows:
        yield f"{name}: {items} arrived, but {session} environment steps are {session // rows}"


def _shutdown_problems(shutdown: Mapping[str, Any] | None, *, completed: bool) -> Iterator[str]:
    if shutdown is None:
        if completed:
            yield "shutdown: missing"
        return
    classification = shutdown.get("classification")
    if not completed:
        if classification == NORMAL:
            yield f"shutdown.classification: {NORMAL} of a run that failed"
        return
    if classification != NORMAL:
        yield f"shutdown.classification: got {classification!r}, expected {NORMAL}"
    for name in ("owner", "phase"):
        if not (isinstance(shutdown.get(name), str) and shutdown[name]):
            yield f"shutdown.{name}: got {shutdown.get(name)!r}, expected a text"
    exception = shutdown.get("exception", ...)
    if exception is not None and not _is_exception(exception):
        yield "shutdown.exception: expected null, or type and message as texts"
    cleanup = shutdown.get("cleanup")
    errors = cleanup.get("errors") if isinstance(cleanup, Mapping) else None
    if errors != [] or type(errors) is not list:
        yield f"shutdown.cleanup.errors: got {errors!r:.200}, expected an empty list"


def _is_exception(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(value.get(name), str) for name in ("type", "message")
    )
