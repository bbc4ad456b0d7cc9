"""The soak artifact 0.3.0: written after every sample, so that it is readable whatever happens.

Until the verdict it says that the soak did not finish, which is then the truth. Samples are
bounded: when the list is full every second one is dropped and from then on only every second new
one is kept; counts and maxima come from all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unilab_core.run.json_files import finite, write_json_atomic
from unilab_core.tools.soak.rules import (
    Finding,
    failure_classification,
    failure_reason,
    shutdown_of,
)

SOAK_SCHEMA_VERSION = "0.3.0"
MAX_SAMPLES = 1000
MIN_INTERVAL_S = 0.05
UNFINISHED = "the soak has not come to its end"

_INGRESS_SUMMARY = {
    "replay_ingress_depth": "ingress_depth",
    "replay_ingress_slot_rows": "ingress_slot_rows",
    "replay_ingress_high_water_occupancy": "high_water_occupancy",
    "replay_ingress_final_occupancy": "occupancy",
    "replay_ingress_backpressure_waits": "backpressure_waits",
    "replay_ingress_backpressure_wait_s": "backpressure_wait_s",
    "replay_ingress_early_returns": "early_returns",
    "replay_ingress_dropped_batches": "dropped_batches",
}
_MAXIMA = {
    "max_process_count": ("process", "process_count"),
    "max_process_rss_kib": ("process", "rss_kib_total"),
    "max_fd_count": ("process", "fd_count_total"),
    "max_thread_count": ("process", "thread_count_total"),
    "max_gpu_used_memory_mib": ("gpu", "used_memory_mib_total"),
    "max_eventfd_count": ("process", "fd_classes_total", "eventfd"),
    "max_shared_memory_fd_count": ("process", "fd_classes_total", "shared_memory"),
    "max_shared_memory_bytes": ("shared_memory", "bytes_total"),
    "max_progress_bytes": ("progress", "bytes_total"),
}
_FLAT = ("max_process_rss_kib", "max_fd_count", "max_thread_count", "max_shared_memory_bytes")


@dataclass(kw_only=True, slots=True, frozen=True)
class MonitorSettings:
    """Times of the monitor, in seconds."""

    sample_interval_s: float = 5.0
    startup_timeout_s: float = 600.0
    stale_progress_s: float = 120.0
    post_shutdown_grace_s: float = 5.0
    min_duration_s: float = 0.0

    def __post_init__(self) -> None:
        """Limits."""
        for name, got in asdict(self).items():
            least_s = MIN_INTERVAL_S if name == "sample_interval_s" else 0.0
            if not got >= least_s:
                raise ValueError(f"{name}: got {got}, expected at least {least_s:g}")


class SoakArtifact:
    """One artifact file, from the start of the command to the verdict."""

    def __init__(
        self,
        path: Path,
        *,
        command: Sequence[str],
        context: Mapping[str, str],
        settings: MonitorSettings,
        console_log: Path,
        max_samples: int = MAX_SAMPLES,
    ) -> None:
        self.path = path
        self._max_samples = max_samples
        self._settings = settings
        self._samples: list[dict[str, Any]] = []
        self._stride = 1
        self._count = 0
        self._maxima: dict[str, int] = dict.fromkeys(_MAXIMA, 0)
        self._record: dict[str, Any] = {
            "schema_version": SOAK_SCHEMA_VERSION,
            "status": "failed",
            "failure_reason": UNFINISHED,
            "failure_classification": "monitor_failure",
            "command": list(command),
            "context": dict(context),
            "started_at_utc": _now_utc(),
            "ended_at_utc": None,
            "duration_s": None,
            "returncode": None,
            "run_dir": None,
            "shutdown": None,
            "post_shutdown": {"residual_processes": [], "residual_shared_memory": []},
            "run_summary": None,
            "console_log": str(console_log),
        }
        self.write()

    @property
    def sample_count(self) -> int:
        """Samples taken, kept or not."""
        return self._count

    def add(self, sample: dict[str, Any]) -> None:
        """Take one sample and write the file."""
        if self._count % self._stride == 0:
            self._samples.append(sample)
        self._count += 1
        if len(self._samples) > self._max_samples:
            self._samples = self._samples[::2]
            self._stride *= 2
        for name, path in _MAXIMA.items():
            self._maxima[name] = max(self._maxima[name], _dig(sample, path))
        self._record["duration_s"] = sample["elapsed_s"]
        self.write()

    def finish(
        self,
        findings: Sequence[Finding],
        *,
        summary: object,
        returncode: int | None,
        duration_s: float,
        run_dir: Path | None,
        residual: Mapping[str, Any],
    ) -> bool:
        """The verdict; whether the run passed."""
        shutdown = shutdown_of(summary)
        self._record.update(
            {
                "status": "failed" if findings else "passed",
                "failure_reason": failure_reason(findings),
                "failure_classification": failure_classification(findings, shutdown),
                "ended_at_utc": _now_utc(),
                "duration_s": duration_s,
                "returncode": returncode,
                "run_dir": None if run_dir is None else str(run_dir),
                "shutdown": None if shutdown is None else dict(shutdown),
                "post_shutdown": dict(residual),
                "run_summary": summary,
            }
        )
        self.write()
        return not findings

    def record(self) -> dict[str, Any]:
        """The whole artifact as plain values."""
        return finite(
            {
                **self._record,
                "monitor": {
                    **asdict(self._settings),
                    "sample_count": self._count,
                    "sample_stride": self._stride,
                },
                "samples": self._samples,
                "resource_summary": self._resource_summary(),
            }
        )

    def write(self) -> None:
        """Replace the file by the present state."""
        write_json_atomic(self.path, self.record())

    def _resource_summary(self) -> dict[str, Any]:
        summary = self._record["run_summary"]
        manifest = _mapping(_mapping(summary).get("runtime_manifest"))
        flight = _mapping(manifest.get("inference_flight"))
        ingress = _mapping(manifest.get("replay_ingress"))
        budget = _mapping(manifest.get("inference_memory_budget"))
        return {
            "sample_count": self._count,
            **self._maxima,
            "residual_process_count": len(self._record["post_shutdown"]["residual_processes"]),
            "ipc_event_count": budget.get("ipc_event_count"),
            "max_in_flight": flight.get("max_in_flight"),
            "max_publication_lag": flight.get("max_publication_lag"),
            **{name: ingress.get(field) for name, field in _INGRESS_SUMMARY.items()},
            "drift": self._drift(),
        }

    def _drift(self) -> dict[str, dict[str, float]]:
        """Means over the second and the last quarter of the kept samples: what grows shows here."""
        quarter = len(self._samples) // 4
        if quarter == 0:
            return {}
        early, late = self._samples[quarter : 2 * quarter], self._samples[-quarter:]
        return {
            name.removeprefix("max_"): {
                "second_quarter": sum(_dig(s, _MAXIMA[name]) for s in early) / quarter,
                "last_quarter": sum(_dig(s, _MAXIMA[name]) for s in late) / quarter,
            }
            for name in _FLAT
        }


def _dig(sample: Mapping[str, Any], path: Sequence[str]) -> int:
    value: Any = sample
    for name in path:
        value = value[name]
    return int(value)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _now_utc() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
