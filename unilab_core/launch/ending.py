"""What a run leaves in its directory and in the registry, and its last line.

last_state.json    the last seconds of both rings, the board, the reason: monitors show it
run_summary.json   figures: what the learner computed, completed from its last record
ended.json         (registry) the pointer to both
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unilab_core.launch.job_files import JobFiles
from unilab_core.launch.manifest import build_manifest
from unilab_core.launch.outcome import Outcome
from unilab_core.launch.record_figures import figures_from_records
from unilab_core.launch.shutdown import cleanup_error, error_type
from unilab_core.run.exit_codes import ExitCode
from unilab_core.run.job_trace import trace_counts
from unilab_core.run.json_files import finite, read_json, write_json_atomic
from unilab_core.run.run_dir import RunPaths
from unilab_core.telemetry.metric_schema import METRIC_SCHEMA_VERSION
from unilab_core.telemetry.plain import format_number
from unilab_core.telemetry.timeline.files import merge_parts, timeline_folder
from unilab_core.telemetry.wandb_sink import run_info
from unilab_ipc.clock import Clock
from unilab_ipc.errors import RecordInvalid
from unilab_ipc.memory import Segment
from unilab_ipc.metric_queue import RingReader

LAST_STATE_VERSION = 1
HISTORY_S = 10.0
MAX_RECORDS = 2000

# Every field of the summary; null until known. Dashboards rely on the keys being there.
SUMMARY_FIELDS = (
    "status",
    "completion_reason",
    "completed_iterations",
    "total_env_steps",
    "final_mean_reward",
    "best_mean_reward",
    "mean_episode_length",
    "last_checkpoint",
    "saved_iteration",
    "trace_path",
    "training_wall_time_sec",
    "dropped_records",
    "metric_schema_version",
    "runtime_manifest",
    "final_env_steps_per_sec",
    "tail_env_steps_per_sec",
    "tail_iteration_count",
    "tail_window_iterations",
    "final_learner_replay_rows_per_sec",
    "final_cycle_wall_ms",
    "final_inference_ms",
    "final_inference_h2d_ms",
    "final_inference_forward_ms",
    "final_inference_d2h_ms",
)

log = logging.getLogger(__name__)

_CHECKPOINT = re.compile(r"checkpoint_(\d+)\.pt")


@dataclass(kw_only=True, slots=True, frozen=True)
class RunFacts:
    """Who ran and since when."""

    job: str
    run_id: str
    run_dir: Path
    started_utc: str
    started_ns: int
    pid: int


def write_ending(
    files: JobFiles, facts: RunFacts, outcome: Outcome, clock: Clock
) -> dict[str, Any]:
    """Write last_state.json and run_summary.json; returns the summary.

    Reads the rings, so it comes before the segments are removed. A full disk costs the files, never
    the clean-up that follows: OSError is for the caller to report.
    """
    run = RunPaths(facts.run_dir)
    remove_partial_files(run)
    rings = {
        role: ring_records(files.segment(f"{role}_metrics")) for role in ("learner", "collector")
    }
    records = {role: newest_records(ring, clock) for role, ring in rings.items()}
    ended_utc = now_utc()
    trace_path = _merge_timeline(files, facts)
    summary = build_summary(files, facts, outcome, rings, clock)
    summary["end_time_utc"] = ended_utc
    summary["trace_path"] = None if trace_path is None else str(trace_path)
    write_json_atomic(
        run.last_state,
        {
            "version": LAST_STATE_VERSION,
            **ended_record(files, facts, outcome, ended_utc),
            "t_ns": clock.now_ns(),
            "board": [asdict(row) for row in files.board().rows()],
            **records,
        },
    )
    write_json_atomic(run.summary, summary)
    return finite(summary)


def note_cleanup_error(run_dir: Path, error: Exception) -> None:
    """Add to the summary what went wrong after it was written: the removal of the names."""
    path = RunPaths(run_dir).summary
    summary = read_json(path)
    if summary is None:
        return
    errors = summary["runtime_manifest"]["shutdown"]["cleanup"]["errors"]
    errors.append(cleanup_error(type(error).__name__, str(error)))
    write_json_atomic(path, summary)


def _merge_timeline(files: JobFiles, facts: RunFacts) -> Path | None:
    """One file of the roles' parts; a full disk leaves the parts, which open one by one."""
    training = files.config.training
    if not training.trace_enabled:
        return None
    folder = timeline_folder(facts.run_dir, training.trace_output_dir)
    try:
        return merge_parts(folder, facts.run_id)
    except OSError as error:
        log.warning("the timeline stays in parts in %s: %s", folder, error)
        return None


def remove_partial_files(run: RunPaths) -> None:
    """Drop what a killed save left half-written; the children are gone by now."""
    for folder in (run.run_dir, run.checkpoints, run.policies, run.logs):
        for path in folder.glob(".*.tmp"):
            path.unlink(missing_ok=True)


def ended_record(
    files: JobFiles, facts: RunFacts, outcome: Outcome, ended_utc: str
) -> dict[str, Any]:
    """ended.json, and the head of last_state.json."""
    training = files.config.training
    return {
        "state": "ended",
        "status": outcome.status,
        "reason": outcome.reason,
        "exit_code": outcome.exit_code,
        "job": facts.job,
        "run_id": facts.run_id,
        "run_dir": str(facts.run_dir),
        "algo": files.config.algo.algo,
        "task": training.task_name,
        "sim": training.sim_backend,
        "rl_trace": files.trace,
        "pid": facts.pid,
        "started_utc": facts.started_utc,
        "ended_utc": ended_utc,
    }


def build_summary(
    files: JobFiles,
    facts: RunFacts,
    outcome: Outcome,
    rings: Mapping[str, list[dict[str, Any]]],
    clock: Clock,
) -> dict[str, Any]:
    """Figures of the run; the learner's own result wins over what its last record tells.

    `rings`: everything that the metric rings of `learner` and `collector` still hold.
    """
    training, algo = files.config.training, files.config.algo
    summary: dict[str, Any] = dict.fromkeys(SUMMARY_FIELDS)
    summary["metric_schema_version"] = METRIC_SCHEMA_VERSION
    summary.update(figures_from_records(rings["learner"]))
    summary.update(newest_checkpoint(RunPaths(facts.run_dir).checkpoints))
    try:
        result = files.folder.read_json("learner_result.json") or {}
    except RecordInvalid:
        result = {}
    summary.update({key: value for key, value in result.items() if value is not None})
    summary["runtime_manifest"] = build_manifest(
        files, outcome, result.get("runtime_manifest") or {}, rings["collector"]
    )
    failure = outcome.failure
    summary.update(
        {
            "status": _status(outcome),
            "completion_reason": outcome.reason,
            "exit_code": outcome.exit_code,
            "job": facts.job,
            "algo": algo.algo,
            "task": training.task_name,
            "sim_backend": training.sim_backend,
            "log_dir": str(facts.run_dir),
            "rl_trace": None
            if files.trace is None
            else {**files.trace, "lines": trace_counts(files.folder)},
            "start_time_utc": facts.started_utc,
            "wall_time_sec": (clock.now_ns() - facts.started_ns) / 1e9,
            "wandb_run_url": run_info(facts.run_dir).get("url"),
            "seed": algo.seed,
            "play_video_path": None,
            "error_type": error_type(outcome),
            "error": None if failure is None else failure.line(),
            "also": list(outcome.later),
        }
    )
    return summary


def last_line(outcome: Outcome, summary: dict[str, Any]) -> str:
    """Iterations, environment steps, wall time and final reward on one line."""
    parts = [
        f"{_count(summary.get('completed_iterations'))} iterations",
        f"{_count(summary.get('total_env_steps'))} environment steps",
        f"{summary['wall_time_sec']:.1f} s",
        f"final reward {format_number(summary.get('final_mean_reward'))}",
    ]
    if outcome.status == "stopped":
        saved = summary.get("saved_iteration")
        parts.append("no checkpoint" if saved is None else f"checkpoint of iteration {saved} saved")
    return f"{outcome.reason}: {', '.join(parts)}"


def newest_checkpoint(folder: Path) -> dict[str, Any]:
    """Path and iteration of the newest checkpoint, empty where there is none."""
    matches = ((_CHECKPOINT.fullmatch(path.name), path) for path in folder.glob("*.pt"))
    found = [(int(match[1]), path) for match, path in matches if match]
    if not found:
        return {}
    iteration, path = max(found)
    return {"saved_iteration": iteration, "last_checkpoint": str(path)}


def recent_records(ring: Segment, clock: Clock) -> list[dict[str, Any]]:
    """Records of the last seconds, and the static facts however old they are."""
    return newest_records(ring_records(ring), clock)


def ring_records(ring: Segment) -> list[dict[str, Any]]:
    """Everything that a metric ring still holds, oldest first."""
    reader = RingReader(ring)
    records: list[dict[str, Any]] = []
    while batch := reader.read():
        records.extend(batch)
    return records


def newest_records(records: list[dict[str, Any]], clock: Clock) -> list[dict[str, Any]]:
    """Those of the last seconds, and the static facts however old they are."""
    since_ns = clock.now_ns() - round(HISTORY_S * 1e9)
    facts = [record for record in records if record.get("kind") == "run"][-1:]
    recent = [record for record in records if _time_ns(record) >= since_ns] or records[-1:]
    rest = [record for record in recent if record.get("kind") != "run"]
    return [*facts, *rest[-MAX_RECORDS:]]


def now_utc() -> str:
    """The wall clock as a label; nothing is computed from it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _status(outcome: Outcome) -> str:
    if outcome.failure is not None and outcome.exit_code == ExitCode.PROCESS_DIED:
        return f"{outcome.failure.role}_died"
    return outcome.status


def _time_ns(record: dict[str, Any]) -> int:
    t_ns = record.get("t_ns")
    return t_ns if isinstance(t_ns, int) else 0


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "-"
