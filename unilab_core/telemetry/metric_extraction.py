"""Steady-state figures of a run, read back from its event files.

    schema      `metric_schema_version` in run_summary.json is 1, canonical tags only
    legacy      no stamp, no canonical tag, recognised pre-schema tags only; on request alone

Both fail closed: a missing or other version, and files that mix both namings, are errors and never
a guess. Each figure is the mean of the last N points of its tag; None where the run has no such
tag. `reward/<term>` kept its name across the schema, so it tells nothing about the naming.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unilab_core.run.json_files import read_json
from unilab_core.run.run_dir import RunPaths
from unilab_core.telemetry.event_file import event_files, read_scalars
from unilab_core.telemetry.legacy_tags import canonical_tag, is_legacy
from unilab_core.telemetry.metric_schema import METRIC_SCHEMA_VERSION, METRICS, spec
from unilab_core.telemetry.runtime_manifest import is_version

Points = Sequence[tuple[int, float]]

S_TO_MS = 1e3
_LOG_NAMES = {"rsl_rl_ppo": "ppo", "appo": "appo", "sac": "sac", "flash_sac": "flashsac"}
_AMBIGUOUS = ("timing/learner_incremental_h2d_ms",)
"""Old tags whose heir depends on the algorithm, among those that a row below reads."""


class ExtractionError(ValueError):
    """The run cannot be read in this mode; says what was found and what would do."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Row:
    """One figure: a canonical tag and the factor to the row's unit, and its older names."""

    name: str
    tag: str | None = None
    """None: derived from other tags (`_derived`)."""
    scale: float = 1.0
    legacy: tuple[str, ...] = ()
    """Newest first; the first one that the file has is read."""


ROWS: tuple[Row, ...] = (
    Row(name="iter_ms", tag="Perf/iteration_time", scale=S_TO_MS, legacy=("perf/iter_ms",)),
    Row(name="steps_per_sec", tag="Perf/total_fps", legacy=("perf/steps_per_sec",)),
    Row(
        name="collector_active_steps_per_sec",
        legacy=("perf/collector_active_steps_per_sec",),
    ),
    Row(name="collector_cycle_ms", legacy=("perf/collector_cycle_ms",)),
    Row(
        name="collector_learner_action_wait_ms",
        tag="Perf/collector_learner_action_wait_ms",
        legacy=("timing/collector_learner_action_wait_ms", "timing/collector_inference_wait_ms"),
    ),
    Row(
        name="collector_replay_write_ms",
        tag="Perf/collector_replay_write_ms",
        legacy=("timing/collector_replay_write_ms", "timing/collector_replay_ms"),
    ),
    Row(
        name="learner_collector_wait_ms",
        tag="Perf/learner_collector_wait_ms",
        legacy=("timing/learner_collector_wait_ms", "timing/learner_wait_ms"),
    ),
    Row(
        name="learner_inference_ms",
        tag="Perf/learner_inference_ms",
        legacy=("timing/learner_inference_ms", "timing/inference_total_ms"),
    ),
    Row(
        name="learner_replay_batch_wait_ms",
        tag="Perf/learner_replay_batch_wait_ms",
        legacy=("timing/learner_replay_batch_wait_ms",),
    ),
    Row(
        name="learner_replay_sample_ms",
        tag="Perf/learner_replay_sample_ms",
        legacy=("timing/learner_replay_sample_ms",),
    ),
    Row(
        name="replay_ingress_h2d_submit_ms",
        tag="Perf/replay_ingress_h2d_submit_ms",
        legacy=("timing/replay_ingress_h2d_submit_ms", *_AMBIGUOUS),
    ),
    Row(
        name="learner_collector_release_ms",
        tag="Perf/learner_collector_release_ms",
        legacy=("timing/learner_collector_release_ms", "timing/learner_sync_coordination_ms"),
    ),
    Row(
        name="learner_train_ms",
        tag="Perf/learning_time",
        scale=S_TO_MS,
        legacy=("timing/learner_train_ms", "perf/train_time_ms"),
    ),
)

_CYCLE = tuple(
    f"Perf/collector_{phase}_ms"
    for phase in (
        "inference_request",
        "learner_action_wait",
        "env_step",
        "transition_extract",
        "replay_write",
        "metrics_publish",
    )
)
_ACTIVE = tuple(
    f"Perf/collector_{phase}_ms" for phase in ("inference_request", "env_step", "replay_write")
)


@dataclass(kw_only=True, slots=True, frozen=True)
class Extraction:
    """The figures of one run."""

    run_dir: str
    event_dir: str
    mode: str
    """`schema` or `legacy`."""
    algo: str | None
    last: int
    rows: Mapping[str, float | None]
    points: Mapping[str, int]
    """Points that each mean was taken over."""
    sources: Mapping[str, str | None]
    """Tag that each row was read from."""


def extract(run_dir: Path, *, last: int = 20, legacy: bool = False) -> Extraction:
    """Read a run.

    Args:
        run_dir: run directory; of nested ones the deepest that holds event files.
        last: points per mean.
        legacy: read tags from before the schema instead.

    Raises:
        ExtractionError: the run is not what this mode reads.
    """
    if last < 1:
        raise ExtractionError(f"--last: got {last}, expected at least 1")
    event_dir = deepest_event_dir(run_dir)
    series = read_scalars(event_dir)
    if not series:
        raise ExtractionError(f"{event_dir}: event files without a single scalar")
    summary = _first_record(run_dir, event_dir, "summary")
    config = _first_record(run_dir, event_dir, "config")
    algo = _algo(summary, config, event_dir)
    if legacy:
        _require_legacy(series, summary)
        found = _legacy_rows(series, algo)
    else:
        _require_schema(series, summary, run_dir)
        found = {row.name: (row.tag, row.scale) for row in ROWS if row.tag in series}
    rows, points, sources = _means(series, found, last)
    if not legacy:
        for name, value, count in _derived(series, config, last):
            rows[name], points[name], sources[name] = value, count, "derived"
    return Extraction(
        run_dir=str(run_dir),
        event_dir=str(event_dir),
        mode="legacy" if legacy else "schema",
        algo=algo,
        last=last,
        rows=rows,
        points=points,
        sources=sources,
    )


def deepest_event_dir(run_dir: Path) -> Path:
    """The folder with event files that lies deepest; of equally deep ones the newest."""
    if not run_dir.is_dir():
        raise ExtractionError(f"{run_dir}: no such run directory")
    folders = {path.parent for path in run_dir.rglob("events.out.tfevents.*")}
    if not folders:
        raise ExtractionError(f"{run_dir}: no TensorBoard event file in or below it")
    return max(
        folders,
        key=lambda folder: (
            len(folder.parts),
            max(path.stat().st_mtime_ns for path in event_files(folder)),
        ),
    )


def _first_record(run_dir: Path, event_dir: Path, which: str) -> dict[str, Any] | None:
    """run_summary.json or run_config.json, of the event files' folder or of the run's."""
    for folder in (event_dir, run_dir):
        paths = RunPaths(folder)
        path = paths.summary if which == "summary" else paths.config
        record = read_json(path)
        if record is not None:
            return record
        if path.exists():  # whether it has a stamp is not known, so nothing may be assumed
            raise ExtractionError(f"{path}: damaged, not a JSON object")
    return None


def _algo(
    summary: dict[str, Any] | None, config: dict[str, Any] | None, event_dir: Path
) -> str | None:
    for record in (summary, config):
        name = (record or {}).get("algo")
        if name in _LOG_NAMES.values():
            return str(name)
    names = [_LOG_NAMES[part] for part in event_dir.resolve().parts if part in _LOG_NAMES]
    return names[-1] if names else None


def _require_schema(
    series: Mapping[str, Points], summary: dict[str, Any] | None, run_dir: Path
) -> None:
    if summary is None:
        raise ExtractionError(
            f"{run_dir}: no run_summary.json, so the metric schema is unknown"
            " (a run from before the schema: --legacy-unversioned)"
        )
    version = summary.get("metric_schema_version")
    if not is_version(version, METRIC_SCHEMA_VERSION):
        what = "missing" if "metric_schema_version" not in summary else f"{version!r}"
        raise ExtractionError(
            f"metric_schema_version in run_summary.json is {what}, supported is"
            f" {METRIC_SCHEMA_VERSION} (a run from before the schema: --legacy-unversioned)"
        )
    old = sorted(tag for tag in series if is_legacy(tag))
    if old:
        raise ExtractionError(f"stamped with schema {version}, but has old tags: {_some(old)}")
    if not any(_is_canonical(tag) for tag in series):
        raise ExtractionError(f"no tag of metric schema {version} among {_some(sorted(series))}")


def _require_legacy(series: Mapping[str, Points], summary: dict[str, Any] | None) -> None:
    if summary is not None and "metric_schema_version" in summary:
        raise ExtractionError(
            f"run_summary.json has metric_schema_version {summary['metric_schema_version']!r}:"
            " not a run from before the schema; leave --legacy-unversioned out"
        )
    new = sorted(tag for tag in series if tag in METRICS)
    if new:
        raise ExtractionError(f"--legacy-unversioned: has tags of the schema: {_some(new)}")
    foreign = sorted(tag for tag in series if not is_legacy(tag) and not _is_canonical(tag))
    if foreign:
        raise ExtractionError(f"--legacy-unversioned: tags nobody ever wrote: {_some(foreign)}")
    if not any(is_legacy(tag) for tag in series):
        raise ExtractionError("--legacy-unversioned: not a single tag from before the schema")


def _legacy_rows(
    series: Mapping[str, Points], algo: str | None
) -> dict[str, tuple[str | None, float]]:
    """Per row the newest of its old tags that the file has, with the factor to the row's unit."""
    if algo is None and any(tag in series for tag in _AMBIGUOUS):
        raise ExtractionError(
            f"{_AMBIGUOUS[0]} means one thing in SAC and another in APPO, and neither"
            " run_config.json nor the path names the algorithm"
        )
    found: dict[str, tuple[str | None, float]] = {}
    for row in ROWS:
        for tag in row.legacy:
            factor = _legacy_factor(tag, row, algo or "sac")
            if factor is not None and tag in series:
                found[row.name] = (tag, factor)
                break
    return found


def _legacy_factor(tag: str, row: Row, algo: str) -> float | None:
    """Factor from the old value to the row's; None where the tag is not the row's here."""
    if row.tag is None:
        return 1.0  # retired without an heir: the old tag is the figure itself
    heir = canonical_tag(tag, algo)
    return heir[1] * row.scale if heir is not None and heir[0] == row.tag else None


def _means(
    series: Mapping[str, Points], found: Mapping[str, tuple[str | None, float]], last: int
) -> tuple[dict[str, float | None], dict[str, int], dict[str, str | None]]:
    rows: dict[str, float | None] = {row.name: None for row in ROWS}
    points = dict.fromkeys(rows, 0)
    sources: dict[str, str | None] = dict.fromkeys(rows)
    for name, (tag, factor) in found.items():
        if tag is not None:
            tail = _tail(series[tag], last)
            rows[name], points[name], sources[name] = _mean(tail) * factor, len(tail), tag
    return rows, points, sources


def _derived(
    series: Mapping[str, Points], config: dict[str, Any] | None, last: int
) -> list[tuple[str, float, int]]:
    """Figures that are no tags any more: they follow from the collector's phases."""
    found: list[tuple[str, float, int]] = []
    means = {tag: _mean(_tail(series[tag], last)) for tag in _CYCLE if tag in series}
    if len(means) == len(_CYCLE):
        count = min(len(_tail(series[tag], last)) for tag in _CYCLE)
        found.append(("collector_cycle_ms", sum(means.values()), count))
        num_envs = _num_envs(config)
        active_ms = sum(means[tag] for tag in _ACTIVE)
        if num_envs is not None and active_ms > 0.0:
            found.append(("collector_active_steps_per_sec", num_envs / active_ms * 1e3, count))
    return found


def _num_envs(config: dict[str, Any] | None) -> int | None:
    algo = ((config or {}).get("config") or {}).get("algo") or {}
    count = algo.get("num_envs")
    return count if type(count) is int and count > 0 else None


def _is_canonical(tag: str) -> bool:
    try:
        spec(tag)
    except ValueError:
        return False
    return True


def _tail(points: Points, last: int) -> list[float]:
    return [value for _, value in points[-last:]]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
