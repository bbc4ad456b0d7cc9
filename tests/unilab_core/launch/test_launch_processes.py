"""unilab-launch with real processes: fake children (no torch, no mujoco), real signals and memory.

Every test ends with the same audit: no process, no shared name, no live job is left.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from launch_rig import PATIENCE_S, TASK, exists, gone, run_names, the_run_dir

pytestmark = [pytest.mark.e2e, pytest.mark.serial]


def test_a_complete_training_leaves_a_complete_run_directory(launch):
    code, out, err = launch.run("algo.max_iterations=30")
    assert code == 0, err
    run_dir = the_run_dir(out)
    assert out.splitlines()[0].startswith("run directory: ")
    last = out.splitlines()[-1]
    assert last.startswith("training completed: 30 iterations, 120 environment steps, ")
    assert last.endswith("final reward 1.500")
    summary = json.loads((run_dir / "run_summary.json").read_text())
    assert summary["status"] == "completed"
    assert summary["completed_iterations"] == 30
    assert summary["best_mean_reward"] == 2.0
    assert summary["metric_schema_version"] == 1
    state = json.loads((run_dir / "last_state.json").read_text())
    assert state["state"] == "ended"
    assert state["learner"][0]["kind"] == "run"
    assert state["learner"][-1]["iteration"] == 30
    assert {row["role"] for row in state["board"]} == {"launcher", "collector", "learner"}
    config = json.loads((run_dir / "run_config.json").read_text())
    assert config["config"]["algo"]["num_envs"] == 4
    ended = launch.record("ended.json")
    assert (ended["state"], ended["exit_code"]) == ("ended", 0)
    assert launch.record("job.json") is None
    assert [job["state"] for job in launch.list_jobs()] == ["ended"]
    assert launch.dead_runs() == []


def test_plain_lines_show_progress(launch):
    code, out, _ = launch.run("--plain", "algo.max_iterations=20")
    assert code == 0
    assert any(line.startswith("iteration ") for line in out.splitlines())
    assert "\x1b" not in out


@pytest.mark.parametrize("role", ["collector", "learner"])
def test_a_killed_child_ends_the_job_and_is_named(launch, role):
    process = launch.start("algo.max_iterations=100000")
    processes, run_dir = launch.running()
    names = run_names(launch.record("job.json"))
    assert all(exists(name) for name in names)
    os.kill(processes[role][0], signal.SIGKILL)
    started_s = time.monotonic()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 10
    assert time.monotonic() - started_s < 30
    assert f"{role}-0 (pid {processes[role][0]}) died: SIGKILL" in err
    assert " in phase training/" in err
    assert not any(exists(name) for name in names)
    assert launch.dead_runs() == []
    summary = json.loads((run_dir / "run_summary.json").read_text())
    assert summary["status"] == f"{role}_died"


def test_a_killed_launcher_takes_its_children_along_and_leaves_names_to_gc(launch):
    process = launch.start("algo.max_iterations=100000")
    processes, _ = launch.running()
    record = launch.record("job.json")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    for role in ("collector", "learner"):
        launch.until(lambda r=role: gone(*processes[r]), f"the end of the {role}")
    runs = launch.dead_runs()
    assert runs[0]["job"] == "job-1"
    assert sorted(runs[0]["names"]) == sorted(run_names(record))
    code, out, _ = launch.run("algo.max_iterations=5")
    assert code == 0
    assert f"reclaimed {len(run_names(record))} objects of run {record['run_id']} (job-1)" in out
    assert not any(exists(name) for name in run_names(record))


def test_a_killed_launcher_takes_along_a_child_that_still_imports(launch):
    process = launch.start(UNILAB_FAKE_LEARNER="slow_import")
    processes, _ = launch.running()
    launch.until(lambda: launch.record("facts-learner-0.json"), "the import")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    for role in ("collector", "learner"):
        launch.until(lambda r=role: gone(*processes[r]), f"the end of the {role}")
    assert launch.command("gc")[0] == 0


def test_ctrl_c_saves_and_names_the_iteration(launch):
    process = launch.start("algo.max_iterations=100000")
    _, run_dir = launch.running()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    saved = sorted((run_dir / "checkpoints").glob("*.pt"))
    iteration = int(saved[-1].stem.split("_")[1])
    assert f"checkpoint of iteration {iteration} saved" in out.splitlines()[-1]
    assert "Traceback" not in out + err
    assert launch.record("ended.json")["exit_code"] == 130


def test_ctrl_c_twice_leaves_without_saving(launch):
    process = launch.start("algo.max_iterations=100000", UNILAB_FAKE_LEARNER="slow_save")
    _, run_dir = launch.running()
    launch.interrupt(process, 2)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "stopped by SIGINT without saving" in out
    assert launch.dead_runs() == []
    assert (run_dir / "run_summary.json").is_file()
    assert not list((run_dir / "checkpoints").glob("*.pt"))


def test_ctrl_c_three_times_ends_at_once_and_gc_finds_the_names(launch):
    process = launch.start("algo.max_iterations=100000", UNILAB_FAKE_COLLECTOR="deaf")
    launch.running()
    record = launch.record("job.json")
    launch.interrupt(process, 3)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    code, out, _ = launch.command("gc", "--json")
    assert code == 0
    assert record["run_id"] in {run["run_id"] for run in json.loads(out)["runs"]}
    assert not any(exists(name) for name in run_names(record))


def test_ctrl_c_while_starting(launch):
    process = launch.start(UNILAB_FAKE_COLLECTOR="no_spec")
    launch.until(lambda: launch.record("launch.json"), "launch.json")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert launch.dead_runs() == []


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_termination_signal_saves_too(launch, signum, code):
    process = launch.start("algo.max_iterations=100000")
    _, run_dir = launch.running()
    process.send_signal(signum)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert list((run_dir / "checkpoints").glob("*.pt"))


def test_a_signal_to_one_child_ends_the_whole_job_in_order(launch):
    process = launch.start("algo.max_iterations=100000")
    processes, run_dir = launch.running()
    os.kill(processes["learner"][0], signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143
    assert "learner-0 received SIGTERM" in err
    assert list((run_dir / "checkpoints").glob("*.pt"))


@pytest.mark.parametrize(
    ("extra", "code", "words"),
    [
        ({"UNILAB_FAKE_COLLECTOR": "raise"}, 11,
         ["collector-0 (pid ", "EnvError: step failed: ValueError: bad", "training/env_step"]),
        ({"UNILAB_FAKE_COLLECTOR": "exit7"}, 10, ["collector-0 (pid ", "exit code 7"]),
        ({"UNILAB_FAKE_LEARNER": "raise"}, 10,
         ["learner-0 (pid ", "RuntimeError: tensors do not match", "training/learner_update"]),
        ({"UNILAB_FAKE_LEARNER": "no_save"}, 14, ["learner-0", "No space left on device"]),
        ({"UNILAB_FAKE_LEARNER": "refuse"}, 5, ["learner-0", "checkpoint_00000003.pt: damaged"]),
    ],
)  # fmt: skip
def test_a_failing_child_is_reported_in_one_line_with_its_exit_code(launch, extra, code, words):
    returncode, out, err = launch.run("algo.max_iterations=40", **extra)
    assert returncode == code, err
    line = next(line for line in err.splitlines() if words[0] in line)
    assert all(word in line for word in words), line
    assert launch.dead_runs() == []
    if code != 5:
        role = "collector" if "UNILAB_FAKE_COLLECTOR" in extra else "learner"
        error = the_run_dir(out) / "logs" / f"{role}-0.error.json"
        assert error.is_file() == ("exit7" not in extra.values())


def test_a_standstill_is_reported_with_the_stack_of_the_silent_process(launch):
    code, _, err = launch.run(
        "algo.max_iterations=100000",
        "training.warn_after_s=0.5",
        "training.hang_after_s=1.5",
        UNILAB_FAKE_COLLECTOR="hang",
    )
    assert code == 13
    assert "warning: collector-0" in err
    assert "in misbehave" in err  # the innermost frame of the sleeping process
    assert "no progress for" in err
    assert launch.dead_runs() == []


def test_one_name_has_one_live_owner(launch):
    process = launch.start("algo.max_iterations=100000")
    launch.running()
    code, _, err = launch.run()
    assert code == 3
    assert f"in use by pid {process.pid}" in err
    assert len(err.splitlines()) == 1
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143


def test_stop_and_stacks_reach_a_running_job(launch):
    process = launch.start("algo.max_iterations=100000")
    launch.running()
    code, out, _ = launch.command("stacks", "job-1")
    assert code == 0
    for role in ("launcher", "collector", "learner"):
        assert f"{role}-0: phase " in out
        assert f"Python stacks of {role}-0" in out
    assert "in learn" in out
    code, out, _ = launch.command("stop", "job-1")
    assert code == 0
    assert "job-1: stopped by SIGINT" in out
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    code, _, err = launch.command("stop", "job-1")
    assert code == 6
    assert len(err.splitlines()) == 1


def test_detach_returns_while_the_job_goes_on(launch):
    code, out, err = launch.run("--detach", "algo.max_iterations=100000")
    assert code == 0, err
    assert the_run_dir(out).is_dir()
    assert "job-1 runs in the background" in out
    processes, _ = launch.running()
    pid = processes["launcher"][0]
    os.kill(pid, signal.SIGHUP)  # the terminal closes
    time.sleep(0.5)
    assert launch.list_jobs()[0]["state"] == "running"
    assert launch.command("stop", "job-1")[0] == 0


def test_detach_fails_as_visibly_as_a_run_in_the_foreground(launch):
    code, out, _ = launch.run("--detach", UNILAB_FAKE_COLLECTOR="exit7", UNILAB_FAKE_OBS_WIDTH="x")
    assert code == 10
    assert "collector-0" in out


def test_dry_run_prints_sizes_and_leaves_nothing(launch):
    code, out, err = launch.run("--dry-run")
    assert code == 0, err
    assert "-m unilab_collector --job job-1 --rank 0" in out
    assert re.search(r"inference_slot +[\d,]+ bytes", out)
    assert "replay_ingress" in out
    assert not launch.logs.exists()
    assert not (launch.registry / "job-1").exists()


def test_resume_continues_with_the_settings_of_the_earlier_run(launch):
    _, out, _ = launch.run("algo.max_iterations=5", "algo.seed=77")
    earlier = the_run_dir(out)
    code, out, err = launch.run(
        "--resume", str(earlier), "--job", "job-2", "training.no_play=true",
        "algo.max_iterations=8", job=None,
    )  # fmt: skip
    assert code == 0, err
    run_dir = the_run_dir(out)
    assert run_dir != earlier
    config = json.loads((run_dir / "run_config.json").read_text())
    assert config["resumed_from"] == str(earlier)
    algo = config["config"]["algo"]
    assert (algo["seed"], algo["max_iterations"], algo["num_envs"]) == (77, 8, 4)
    assert (algo["resume"], algo["load_run"]) == (True, str(earlier))


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--task", "go2_joystik_flat"], 2, "nearest: go2_joystick_flat"),
        (["--algo", "sax"], 2, "nearest: sac"),
        (["algo.num_env=3"], 2, "nearest: algo.num_envs"),
        (["algo.num_envs=many"], 2, "algo.num_envs: got 'many' (str), expected int"),
        (["training.logger=wandb"], 2, "training.logger=wandb: "),
        (["--job", "../x"], 2, "job name"),
        (["--sim", "mjwarp"], 2, "not part of this version"),
        (["--frobnicate"], 2, "--frobnicate"),
        (["training.log_root=/proc/nowhere"], 2, "/proc/nowhere"),
        (["--resume", "/nonexistent"], 2, "no such run directory"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(launch, args, code, words):
    returncode, out, err = launch.run(*args)
    assert returncode == code
    assert words in err
    assert len(err.splitlines()) == 1, err
    assert out == ""
    assert not list(launch.logs.rglob("*_mujoco"))
    assert launch.dead_runs() == []


def test_a_segment_larger_than_shared_memory_is_refused_with_both_numbers(launch):
    code, _, err = launch.run(UNILAB_FAKE_OBS_WIDTH="200000000000")
    assert code == 4
    assert re.search(r"need \d+ bytes, \d+ bytes free", err)
    assert not list(launch.logs.rglob("*_mujoco"))
    assert launch.dead_runs() == []


def test_shared_memory_too_small_for_the_rings_is_refused_before_anything_starts(launch, tmp_path):
    script = f'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec {sys.executable} "$@"'
    settings = (f"training.log_root={launch.logs}", "training.no_play=true")
    done = subprocess.run(
        ("unshare", "-m", "sh", "-c", script, "sh", "-m", "unilab_core.launch", "--algo", "sac",
         "--task", TASK, "--job", "job-1", *settings),
        cwd=tmp_path, env=launch.environ(), capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip("needs a mount namespace of its own")
    assert done.returncode == 4
    assert re.search(r"need 5\d{6} bytes, \d+ bytes free", done.stderr)
    assert len(done.stderr.splitlines()) == 1
    assert not list(launch.logs.rglob("*_mujoco"))
    assert launch.record("launch.json") is None


def test_a_video_that_fails_is_one_line(launch, tmp_path):
    code, out, err = launch.run("algo.max_iterations=5", "training.no_play=false", PATH="/bin")
    assert code == 0
    assert "filming the policy" in out
    assert len([line for line in err.splitlines() if line.startswith("no video: ")]) == 1
