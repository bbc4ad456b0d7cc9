"""However a run ends, its summary tells how: status, first cause, manifest 1, shutdown."""

import json
import os
import signal

import pytest
from launch_rig import PATIENCE_S, the_run_dir

from unilab_core.launch.ending import SUMMARY_FIELDS
from unilab_core.telemetry.runtime_manifest import manifest_problems

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

TRACKER_FIELDS = (
    "algo", "task", "sim_backend", "log_dir", "start_time_utc", "end_time_utc", "wall_time_sec",
    "wandb_run_url", "seed", "play_video_path", "error_type", "error",
)  # fmt: skip
SHUTDOWN_FIELDS = {
    "classification", "owner", "phase", "iteration", "coordination_tick", "inference_epoch",
    "exception", "learner_coordination", "inference_ring", "replay_ingress", "collector", "cleanup",
}  # fmt: skip
ENDLESS = "algo.max_iterations=100000"


def summary_of(run_dir):
    summary = json.loads((run_dir / "run_summary.json").read_text())
    assert set(SUMMARY_FIELDS) | set(TRACKER_FIELDS) <= summary.keys()
    assert type(summary["metric_schema_version"]) is int
    assert summary["metric_schema_version"] == 1
    shutdown = summary["runtime_manifest"]["shutdown"]
    assert shutdown.keys() >= SHUTDOWN_FIELDS
    return summary, shutdown


def test_a_completed_run_keeps_the_whole_contract(launch):
    code, out, err = launch.run("algo.max_iterations=30", "algo.seed=41")
    assert code == 0, err
    run_dir = the_run_dir(out)
    summary, shutdown = summary_of(run_dir)
    manifest = summary["runtime_manifest"]
    assert manifest_problems(manifest, algo="sac", completed=True) == []
    assert (shutdown["classification"], shutdown["owner"]) == ("normal_completion", "learner")
    assert shutdown["iteration"] == 30
    assert shutdown["exception"] is None
    assert shutdown["cleanup"] == {"errors": []}
    assert shutdown["collector"].items() >= {"alive": False, "exitcode": 0, "signal": None}.items()
    assert summary["error_type"] is None
    assert manifest["seeds"]["root"] == summary["seed"] == 41
    assert manifest["inference_owner"] == "learner"
    assert manifest["threads"]["planned"]["learner"] >= 1
    assert manifest["versions"]["torch"]
    assert manifest["cpu"]["usable_cores"] >= 1
    config = json.loads((run_dir / "run_config.json").read_text())
    assert config["versions"] == manifest["versions"]
    # The fake learner leaves no tail: it comes from its ring, 100 steps/s in each record.
    assert summary["tail_iteration_count"] == 30
    assert summary["tail_window_iterations"] == 100
    assert summary["tail_env_steps_per_sec"] == pytest.approx(100.0)


@pytest.mark.parametrize("role", ["collector", "learner"])
def test_a_killed_role_is_the_owner_and_the_signal_is_the_cause(launch, role):
    process = launch.start(ENDLESS)
    processes, run_dir = launch.running()
    os.kill(processes[role][0], signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    summary, shutdown = summary_of(run_dir)
    assert manifest_problems(summary["runtime_manifest"], algo="sac", completed=False) == []
    assert (summary["status"], summary["error_type"]) == (f"{role}_died", "SIGKILL")
    assert (shutdown["classification"], shutdown["owner"]) == (f"{role}_failure", role)
    assert shutdown["exception"] is None
    assert shutdown["phase"].startswith("training/")
    killed = shutdown[role]
    assert (killed["exitcode"], killed["signal"], killed["signal_name"]) == (-9, 9, "SIGKILL")
    assert summary["completed_iterations"] > 0
    assert summary["tail_env_steps_per_sec"] == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("extra", "status", "owner", "kind", "text"),
    [
        ({"UNILAB_FAKE_COLLECTOR": "raise"}, "failed", "collector", "EnvError", "bad joint"),
        ({"UNILAB_FAKE_COLLECTOR": "nan"}, "failed", "collector", "NonFiniteError",
         "reward NaN env 17 step 1204"),
        ({"UNILAB_FAKE_LEARNER": "raise"}, "learner_died", "learner", "RuntimeError",
         "tensors do not match"),
        ({"UNILAB_FAKE_OBS_WIDTH": "x"}, "collector_died", "collector", "ValueError", "'x'"),
    ],
    ids=["environment", "nan", "update", "start-up"],
)  # fmt: skip
def test_the_exception_that_came_first_is_kept(launch, extra, status, owner, kind, text):
    code, out, _ = launch.run(ENDLESS, **extra)
    assert code in (10, 11, 12)
    summary, shutdown = summary_of(the_run_dir(out))
    assert (summary["status"], summary["error_type"]) == (status, kind)
    assert text in summary["error"]
    assert (shutdown["classification"], shutdown["owner"]) == (f"{owner}_failure", owner)
    assert shutdown["exception"]["type"] == kind
    assert text in shutdown["exception"]["message"]
    assert manifest_problems(summary["runtime_manifest"], algo="sac", completed=False) == []


def test_an_exit_without_a_word_is_told_by_its_code(launch):
    code, out, _ = launch.run(ENDLESS, UNILAB_FAKE_COLLECTOR="exit7")
    assert code == 10
    summary, shutdown = summary_of(the_run_dir(out))
    assert summary["error_type"] == "exit code 7"
    assert shutdown["collector"].items() >= {"exitcode": 7, "signal": None}.items()
    assert shutdown["exception"] is None


def test_a_hang_is_a_stale_tick_of_the_role_that_stood_still(launch):
    code, out, _ = launch.run(
        ENDLESS, "training.warn_after_s=0.5", "training.hang_after_s=1.5",
        UNILAB_FAKE_COLLECTOR="hang",
    )  # fmt: skip
    assert code == 13
    summary, shutdown = summary_of(the_run_dir(out))
    assert (shutdown["classification"], shutdown["owner"]) == ("timeout/stale_tick", "collector")
    assert summary["error_type"] == "Hang"
    assert "no progress for" in summary["error"]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_an_interrupt_is_external_however_often_it_came(launch, times):
    extra = {1: {}, 2: {"UNILAB_FAKE_LEARNER": "slow_save"}, 3: {"UNILAB_FAKE_COLLECTOR": "deaf"}}
    process = launch.start(ENDLESS, **extra[times])
    _, run_dir = launch.running()
    launch.interrupt(process, times)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    summary, shutdown = summary_of(run_dir)
    assert summary["status"] == "stopped"
    owner = (shutdown["classification"], shutdown["owner"])
    assert owner == ("external_cancellation", "external")
    assert manifest_problems(summary["runtime_manifest"], algo="sac", completed=False) == []
    launch.command("gc")


def test_an_interrupt_before_the_first_environment_is_recorded_as_well(launch):
    process = launch.start(UNILAB_FAKE_COLLECTOR="no_spec")
    record = launch.until(lambda: launch.record("launch.json"), "launch.json")
    launch.until(lambda: list((launch.logs).rglob("collector-0.log")), "a collector")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, out + err
    summary, shutdown = summary_of(the_run_dir(out))
    assert record["run_dir"] == summary["log_dir"]
    assert shutdown["classification"] == "external_cancellation"
    manifest = summary["runtime_manifest"]
    assert "collector_backend_device" not in manifest  # nobody knows it yet
    assert manifest_problems(manifest, algo="sac", completed=False) == []
    assert summary["final_mean_reward"] is None
    assert summary["best_mean_reward"] is None
