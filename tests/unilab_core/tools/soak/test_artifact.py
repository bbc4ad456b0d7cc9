"""The artifact has every field at any time, and stays small."""

import json

import pytest

from unilab_core.tools.soak.artifact import MonitorSettings, SoakArtifact
from unilab_core.tools.soak.sampling import FD_CLASSES

TOP = {
    "schema_version", "status", "failure_reason", "failure_classification", "command", "context",
    "started_at_utc", "ended_at_utc", "duration_s", "returncode", "monitor", "samples",
    "resource_summary", "shutdown", "post_shutdown", "run_summary", "console_log",
}  # fmt: skip
MONITOR = {
    "sample_interval_s", "startup_timeout_s", "stale_progress_s", "post_shutdown_grace_s",
    "min_duration_s", "sample_count",
}  # fmt: skip
RESOURCES = {
    "sample_count", "max_process_count", "max_process_rss_kib", "max_gpu_used_memory_mib",
    "max_eventfd_count", "max_shared_memory_fd_count", "max_progress_bytes",
    "residual_process_count", "ipc_event_count", "max_in_flight", "max_publication_lag",
    "replay_ingress_depth", "replay_ingress_slot_rows", "replay_ingress_high_water_occupancy",
    "replay_ingress_final_occupancy", "replay_ingress_backpressure_waits",
    "replay_ingress_backpressure_wait_s", "replay_ingress_early_returns",
    "replay_ingress_dropped_batches",
}  # fmt: skip


def sample(i, rss=1000, fds=10):
    classes = {**dict.fromkeys(FD_CLASSES, 0), "eventfd": i % 3, "shared_memory": 4}
    return {
        "elapsed_s": 5.0 * i,
        "process": {
            "process_count": 3, "rss_kib_total": rss, "thread_count_total": 7,
            "fd_count_total": fds, "fd_classes_total": classes, "processes": [],
        },
        "gpu": {"process_count": 0, "used_memory_mib_total": 0, "processes": []},
        "progress": {"file_count": 2, "bytes_total": 100 * i, "max_mtime": 1.0},
        "shared_memory": {"names": ["ul-1"], "bytes_total": 4096},
    }  # fmt: skip


def make(tmp_path, **options):
    return SoakArtifact(
        tmp_path / "soak.json", command=["x", "--y"], context={"host": "a"},
        settings=MonitorSettings(), console_log=tmp_path / "soak-console.log", **options,
    )  # fmt: skip


def on_disk(artifact):
    return json.loads(artifact.path.read_text())


def test_an_interrupted_soak_leaves_a_readable_artifact_that_says_so(tmp_path):
    artifact = make(tmp_path)
    for i in range(3):
        found = on_disk(artifact)
        assert found.keys() >= TOP
        assert found["monitor"].keys() >= MONITOR
        assert found["resource_summary"].keys() >= RESOURCES
        assert (found["schema_version"], found["status"]) == ("0.3.0", "failed")
        assert found["failure_classification"] == "monitor_failure"
        assert len(found["samples"]) == found["monitor"]["sample_count"] == i
        artifact.add(sample(i))


def test_samples_are_bounded_and_the_maxima_come_from_all_of_them(tmp_path):
    artifact = make(tmp_path, max_samples=8)
    for i in range(1000):
        artifact.add(sample(i, rss=99_999 if i == 501 else 1000))
        assert len(on_disk(artifact)["samples"]) <= 8
    found = on_disk(artifact)
    elapsed = [s["elapsed_s"] for s in found["samples"]]
    assert elapsed == [5.0 * i * found["monitor"]["sample_stride"] for i in range(len(elapsed))]
    assert found["monitor"]["sample_count"] == found["resource_summary"]["sample_count"] == 1000
    assert found["resource_summary"]["max_process_rss_kib"] == 99_999
    assert found["resource_summary"]["max_eventfd_count"] == 2
    assert found["resource_summary"]["max_progress_bytes"] == 99_900


def test_growth_shows_between_the_second_and_the_last_quarter(tmp_path):
    artifact = make(tmp_path)
    for i in range(8):
        artifact.add(sample(i, rss=1000 + 100 * i))
    drift = on_disk(artifact)["resource_summary"]["drift"]
    assert drift["process_rss_kib"] == {"second_quarter": 1250.0, "last_quarter": 1650.0}
    assert drift["fd_count"] == {"second_quarter": 10.0, "last_quarter": 10.0}


def test_a_passed_run_carries_its_summary_and_shutdown(tmp_path):
    shutdown = {"classification": "normal_completion"}
    ingress = {"ingress_depth": 2, "occupancy": 0, "backpressure_wait_s": 0.5}
    summary = {
        "runtime_manifest": {
            "shutdown": shutdown, "replay_ingress": ingress,
            "inference_flight": {"max_in_flight": 1},
        }
    }  # fmt: skip
    artifact = make(tmp_path)
    passed = artifact.finish(
        [], summary=summary, returncode=0, duration_s=61.5, run_dir=tmp_path,
        residual={"residual_processes": [], "residual_shared_memory": []},
    )  # fmt: skip
    found = on_disk(artifact)
    assert passed
    assert (found["status"], found["failure_reason"]) == ("passed", None)
    assert found["failure_classification"] is None
    assert found["shutdown"] == shutdown
    assert found["run_summary"] == summary
    resources = found["resource_summary"]
    assert resources["replay_ingress_depth"] == 2
    assert resources["replay_ingress_backpressure_wait_s"] == 0.5
    assert (resources["max_in_flight"], resources["ipc_event_count"]) == (1, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [("sample_interval_s", 0.0), ("stale_progress_s", -1.0), ("min_duration_s", float("nan"))],
)
def test_times_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        MonitorSettings(**{name: value})
