"""F34, F35: no GPU, few descriptors, any umask, a home that is not there."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from launch_rig import ROOT, the_run_dir

pytestmark = [pytest.mark.e2e, pytest.mark.serial]


def limited(launch, descriptors, umask, **environ):
    """One short job below these limits."""

    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
        os.umask(umask)

    return subprocess.run(
        [sys.executable, "-m", "unilab_core.launch", "--algo", "sac", "--task", "go2_joystick_flat",
         "--job", "job-1", "algo.num_envs=4", "training.no_play=true", "algo.max_iterations=20",
         f"training.log_root={launch.logs}"],
        cwd=launch.tmp_path, env=launch.environ(**environ), preexec_fn=limit, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("umask", [0, 0o077])
def test_f35_a_job_runs_with_128_descriptors_any_umask_and_a_home_that_is_not_there(launch, umask):
    done = limited(launch, 128, umask, HOME="/proc/no-home", XDG_CACHE_HOME="/proc/no-cache")
    assert done.returncode == 0, done.stderr
    run_dir = the_run_dir(done.stdout)
    assert (run_dir / "run_summary.json").is_file()
    # Records stay readable to their owner whatever the umask, and never executable.
    assert {path.stat().st_mode & 0o711 for path in run_dir.glob("*.json")} == {0o600}


def test_f35_too_few_descriptors_are_a_named_refusal(launch):
    done = limited(launch, 14, 0o022)
    assert done.returncode == 4, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert "Too many open files" in done.stderr


def test_f34_a_machine_without_a_gpu_plans_for_the_cpu(tmp_path):
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "",
               "UNILAB_RUNTIME_DIR": str(tmp_path / "registry")}  # fmt: skip
    words = [sys.executable, "-m", "unilab_core.launch", "--algo", "sac", "--task"]
    words += ["go2_joystick_flat", "--dry-run"]
    done = subprocess.run(
        words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    assert "hardware       cpu" in done.stdout
    refused = subprocess.run(
        [*words, "training.device=cuda"], cwd=tmp_path, env=environ, capture_output=True, text=True,
        timeout=180,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "training.device" in refused.stderr
    assert list(Path(tmp_path).iterdir()) == []
