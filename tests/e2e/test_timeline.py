"""Timelines of real runs: figures from the trace alone, arrows through both processes, kills."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from unilab_core.telemetry.timeline.files import timeline_files
from unilab_core.telemetry.timeline.reader import Slice, TimelineReader
from unilab_core.tools.bench import timeline

pytest.importorskip("gymnasium")
pytestmark = [pytest.mark.e2e, pytest.mark.serial]

SHORT = ["algo.num_envs=4", "training.no_play=true", "training.export_onnx=false",
         "training.trace_enabled=true"]  # fmt: skip
SIZES = {
    "sac": ["algo.max_iterations=40", "algo.learning_starts=8"],
    "ppo": ["algo.max_iterations=3", "algo.num_steps_per_env=32"],
    "appo": ["algo.max_iterations=4", "algo.steps_per_env=32"],
}
# Every figure of the timing view that a run logs; what the trace has is more.
EXPECTED = {
    "sac": {
        ("iteration", f"Perf/learner_{name}_ms")
        for name in ("collector_wait", "inference", "collector_release", "replay_batch_wait",
                     "replay_sample", "inference_h2d", "inference_forward", "inference_d2h")
    } | {("iteration", "Perf/learning_time"), ("iteration", "Perf/iteration_time")} | {
        ("tick", f"Perf/collector_{name}_ms")
        for name in ("inference_request", "learner_action_wait", "env_step", "transition_extract",
                     "replay_write", "metrics_publish", "env_step_backend")
    },
    "ppo": {("iteration", "Perf/learning_time"), ("iteration", "Perf/iteration_time"),
            ("rollout", "Perf/collection_time")},
    "appo": {
        ("iteration", f"Perf/learner_{name}_ms")
        for name in ("collector_wait", "replay_stage", "replay_sample", "weight_publish")
    } | {("iteration", "Perf/learning_time"), ("iteration", "Perf/iteration_time"),
         ("rollout", "Perf/collection_time"), ("rollout", "Perf/collector_mlp_infer_ms"),
         ("rollout", "Perf/collector_env_step_ms")},
}  # fmt: skip
CHAINS = {
    "sac": ("Inference Request", "Inference", "Collector Release", "Env Step", "Replay Write",
            "Ingress Commit", "Gather", "Learning"),
    "ppo": ("Inference Request", "Inference", "Response", "Env Step", "Replay Write", "Store",
            "Learning"),
    "appo": ("Rollout Wall", "Replay Stage", "Replay Sample", "Learning", "Weight Publish"),
}  # fmt: skip


@pytest.fixture
def environ(tmp_path):
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    return {**os.environ, "UNILAB_RUNTIME_DIR": str(runtime), "CUDA_VISIBLE_DEVICES": ""}


def command(algo, run_dir, *rest):
    return [
        sys.executable, "-m", "unilab_core.launch", "--plain", "--algo", algo,
        "--task", "gym:Pendulum-v1", f"training.log_dir={run_dir}", *SHORT, *SIZES[algo], *rest,
    ]  # fmt: skip


def arrows(slices):
    """Slices per arrow chain, in order of time."""
    chains = {}
    for found in slices:
        for flow in (*found.flows, *found.ends):
            chains.setdefault(flow, []).append(found)
    for chain in chains.values():
        chain.sort(key=lambda found: found.start_ns)
    return chains


@pytest.mark.parametrize("algo", SIZES)
def test_figures_and_arrows_of_a_whole_run(algo, tmp_path, environ):
    run_dir = tmp_path / "run"
    done = subprocess.run(
        command(algo, run_dir), env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((run_dir / "run_summary.json").read_text())
    (merged,) = (run_dir / "trace").iterdir()
    assert summary["trace_path"] == str(merged)

    report = timeline.run(source=run_dir)
    compared = {
        (row["of"], row["figure"]): row for row in report.rows if row["difference_pct"] is not None
    }
    assert compared.keys() >= EXPECTED[algo]
    for row in compared.values():
        assert row["compared"] > 0
        assert abs(row["difference_pct"]) < 0.01, row  # the same numbers; 2 % are promised
    iterations = summary["completed_iterations"]
    assert compared["iteration", "Perf/iteration_time"]["compared"] == iterations

    reader = TimelineReader(timeline_files(run_dir))
    events = list(reader.events())
    slices = [event for event in events if isinstance(event, Slice)]
    names = {track.name for track in reader.tracks.values()}
    assert names >= {"collector-0", "learner-0", "collector", "learner", "Policy Version"}
    complete = 0
    for flow, chain in arrows(slices).items():
        found = tuple(each.name for each in chain)
        if found[-1] == CHAINS[algo][-1] and flow in chain[-1].ends:
            assert found == CHAINS[algo]
            complete += 1
    assert complete >= 3
    if algo == "appo":
        fetched = [c for c in arrows(slices).values() if c[-1].name == "Weight Fetch"]
        assert any([each.name for each in c] == ["Weight Publish", "Weight Fetch"] for c in fetched)


@pytest.mark.parametrize("victim", ["collector", "learner"])
def test_a_killed_role_leaves_the_timeline_up_to_its_last_flush(victim, tmp_path, environ):
    run_dir = tmp_path / "run"
    endless = command("sac", run_dir, "algo.max_iterations=1000000")
    launcher = subprocess.Popen(
        endless, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        lines = 0
        for line in launcher.stdout:
            lines += line.startswith("iteration")
            if lines == 2:
                break
        os.kill(_child(launcher.pid, f"unilab_{victim}"), signal.SIGKILL)
        output = launcher.stdout.read()
        assert launcher.wait(60) == 10, output
    finally:
        if launcher.poll() is None:
            launcher.kill()
        launcher.stdout.close()
    reader = TimelineReader(timeline_files(run_dir))
    counts = Counter(found.track.process for found in reader.slices())
    assert not reader.torn
    assert counts["collector-0"] > 50
    assert counts["learner-0"] > 50


def _child(parent, module):
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if module in Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0"):
            return int(pid)
    raise AssertionError(f"no {module} below process {parent}")


def test_cpu_times_are_recorded_where_asked_for(tmp_path, environ):
    run_dir = tmp_path / "run"
    timed = command("sac", run_dir, "training.trace_thread_time=true")
    done = subprocess.run(timed, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    timed_names = {s.name for s in TimelineReader(timeline_files(run_dir)).slices() if s.cpu_ns}
    assert timed_names >= {"Learning", "Env Step"}


def test_a_folder_of_its_own_and_one_that_cannot_be_written(tmp_path, environ):
    folder = tmp_path / "traces"
    run_dir = tmp_path / "run"
    done = subprocess.run(
        command("sac", run_dir, f"training.trace_output_dir={folder}"),
        env=environ, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (merged,) = folder.iterdir()
    assert json.loads((run_dir / "run_summary.json").read_text())["trace_path"] == str(merged)
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = subprocess.run(
        command("sac", tmp_path / "other", f"training.trace_output_dir={blocked}/x"),
        env=environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "training.trace_output_dir: cannot write into" in done.stderr
    assert not (tmp_path / "other").exists()
