"""Jobs of ours write trace directories that the document's own check accepts, live and complete."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unilab_core.telemetry.rl_trace.reader import TraceReader

pytest.importorskip("gymnasium")
pytestmark = [pytest.mark.e2e, pytest.mark.serial]

SETTINGS = {
    "sac": ["algo.max_iterations=160", "algo.learning_starts=5"],
    "ppo": ["algo.max_iterations=3", "algo.num_steps_per_env=16"],
    "appo": ["algo.max_iterations=3", "algo.steps_per_env=16"],
}
KINDS = (
    r"sample/.+-pid\d+\.csv",
    r"trajectory/trajectory_\d+_\d+\.jsonl",
    r"progress/\d{8}-\d{2}\.log",
)


@pytest.fixture
def environ(tmp_path):
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    kept = {name: value for name, value in os.environ.items() if name != "VERL_TRACE_DIR"}
    return {**kept, "UNILAB_RUNTIME_DIR": str(runtime), "CUDA_VISIBLE_DEVICES": ""}


def command(algo, folder, *rest):
    return [
        sys.executable, "-m", "unilab_core.launch", "--plain", "--algo", algo,
        "--task", "gym:Pendulum-v1", f"training.log_dir={folder}/run", "training.no_play=true",
        "training.logger=none", "algo.num_envs=8", "training.rl_trace_every=4", *SETTINGS[algo],
        *rest,
    ]  # fmt: skip


def run(algo, folder, environ, *rest):
    done = subprocess.run(
        command(algo, folder, *rest), env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def monitor(path, environ):
    done = subprocess.run(
        [sys.executable, "-m", "unilab_monitor", str(path), "--once", "--json"],
        env=environ, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def listed(root):
    """The document's command: `find <trace_dir> -maxdepth 2 -type f`."""
    found = subprocess.run(
        ["find", str(root), "-maxdepth", "2", "-type", "f"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [str(Path(line).relative_to(root)) for line in found.stdout.splitlines()]


@pytest.mark.parametrize("algo", list(SETTINGS))
def test_every_algorithm_writes_a_directory_that_the_monitor_reads(algo, tmp_path, environ):
    run(algo, tmp_path, environ, "training.rl_trace=true")
    root = tmp_path / "run" / "rl_trace"
    names = listed(root)
    for kind in KINDS:
        assert any(re.fullmatch(kind, name) for name in names), (kind, names)
    assert all(any(re.fullmatch(kind, name) for kind in KINDS) for name in names)

    figures = monitor(root, environ)
    steps = 3  # of SAC: 160 iterations, 64 each
    assert figures["progress"]["mode"] == ("colocate" if algo == "ppo" else "disagg")
    assert figures["progress"]["total_steps"] == steps
    assert figures["progress"]["current_step"] == steps
    assert figures["progress"]["trace_every"] == 4
    stages = {stage["name"]: stage for stage in figures["progress"]["stages"]}
    assert stages["update actor"]["state"] == "done"
    assert stages["update actor"]["time_source"] == "exact"
    assert stages["update actor"]["duration_s"] > 0.0
    totals = figures["flow"]["totals"]
    assert totals["trajs"] % 2 == 0  # environments 0 and 4
    assert totals["trajs"] >= 4
    assert totals["trained"] >= 2
    assert figures["trajectories"]["with_flow"] == figures["trajectories"]["count"] > 0
    assert figures["flow"]["transitions"]["generation"]["n"] > 0
    assert figures["flow"]["staleness"]["kind"] == "version"
    assert {name: count for name, count in figures["health"].items() if count} == {}

    summary = json.loads((tmp_path / "run" / "run_summary.json").read_text())
    lines = summary["rl_trace"]["lines"]
    assert summary["rl_trace"]["every"] == 4
    assert all(lines[role]["dropped"] == 0 for role in ("collector-0", "learner-0"))
    assert all(lines[role]["written"] > 0 for role in ("collector-0", "learner-0"))


def test_the_variable_names_the_root_and_prints_progress(tmp_path, environ):
    root = tmp_path / "shared"
    done = run("ppo", tmp_path, {**environ, "VERL_TRACE_DIR": str(root)})
    assert not (tmp_path / "run" / "rl_trace").exists()
    (progress,) = root.glob("progress/*.log")
    written = progress.read_text().splitlines()
    printed = done.stdout.splitlines()
    assert "Total training steps: 3" in printed
    headers = [line for line in written if line.startswith("=" * 20)]
    assert [line for line in printed if line in headers] == headers
    assert len(headers) == 3
    assert printed[-1].startswith("training completed: 3 iterations")


def test_a_run_without_traces_writes_none(tmp_path, environ):
    run("ppo", tmp_path, environ)
    assert not (tmp_path / "run" / "rl_trace").exists()
    assert not (tmp_path / "run" / "progress.tsidx").exists()
    assert json.loads((tmp_path / "run" / "run_summary.json").read_text())["rl_trace"] is None


def test_a_root_that_refuses_everything_costs_counted_lines_only(tmp_path, environ):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the directory should be")
    done = run("ppo", tmp_path, {**environ, "VERL_TRACE_DIR": str(blocked)})
    assert "training completed: 3 iterations" in done.stdout
    assert "lines of the launcher were lost" in done.stderr
    summary = json.loads((tmp_path / "run" / "run_summary.json").read_text())
    lines = summary["rl_trace"]["lines"]
    assert all(lines[role]["dropped"] > 0 for role in ("collector-0", "learner-0"))
    assert summary["status"] == "completed"


def test_a_running_job_is_seen_as_it_writes(tmp_path, environ, record_property):
    """The lag is recorded, not judged: this machine may be busy."""
    settings = ["training.rl_trace=true", "algo.max_iterations=100000"]
    with subprocess.Popen(
        command("sac", tmp_path, *settings), env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            root = tmp_path / "run" / "rl_trace"
            deadline = time.monotonic() + 120.0
            while not list(root.glob("sample/*.csv")) and time.monotonic() < deadline:
                assert process.poll() is None
                time.sleep(0.05)
            reader = TraceReader(root)
            lags_ms, events = [], 0
            while len(lags_ms) < 40 and time.monotonic() < deadline:
                reader.poll()
                rows = reader.store.num_rows
                snapshot = reader.snapshot()
                if rows > events and snapshot.last_event_ms is not None:
                    events = rows
                    lags_ms.append(time.time_ns() // 1_000_000 - snapshot.last_event_ms)
                time.sleep(0.02)
            assert snapshot.running
            assert snapshot.flow.totals["trajs"] > 0
            record_property("lag_ms_max", max(lags_ms))
            print(f"lag of the newest event when seen: max {max(lags_ms)} ms of {len(lags_ms)}")
        finally:
            process.terminate()
            process.wait(30.0)
    assert process.returncode == 143
