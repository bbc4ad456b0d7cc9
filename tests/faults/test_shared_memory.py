"""F17, F23: what others do to /dev/shm while a job runs. Real launchers, fake children."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch_rig import exists, run_names

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

FILL = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from launch_rig import Launch
launch = Launch(Path(sys.argv[2]))
process = launch.start("algo.max_iterations=150")
launch.running()
with open("/dev/shm/filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(1 << 16))
    except OSError:
        pass
    free = os.statvfs("/dev/shm").f_bavail
    out, err = process.communicate(timeout=120)
print(free, process.returncode, sorted(os.listdir("/dev/shm")), err)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small /dev/shm")
def test_f17_a_shm_that_others_fill_does_not_reach_a_running_job(tmp_path):
    rig = Path(__file__).parents[1] / "unilab_core" / "launch"
    mount = "mount -t tmpfs -o size=16m tmpfs /dev/shm"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-c", FILL,
         str(rig), str(tmp_path)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout.startswith("0 0 ['filler']"), (done.stdout, done.stderr)


def test_f23_names_that_a_third_party_unlinks_do_not_reach_a_running_job(launch):
    process = launch.start("algo.max_iterations=150")
    launch.running()
    for name in run_names(launch.record("job.json")):
        os.unlink("/dev/shm" + name)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "training completed: 150 iterations" in out


@pytest.mark.parametrize("kind", ["heartbeat", "learner_metrics", "inference_slot"])
def test_f23_a_segment_that_a_third_party_cuts_short_ends_the_job_with_its_cause(launch, kind):
    process = launch.start("algo.max_iterations=100000")
    launch.running()
    record = launch.record("job.json")
    (name,) = [item["name"] for item in record["segments"] if item["kind"] == kind]
    os.truncate("/dev/shm" + name, 0)
    try:
        _, err = process.communicate(timeout=60)
    finally:
        process.send_signal(signal.SIGKILL)
    assert process.returncode == 10, err
    # Either the launcher looked first, or the process that touched the hole names its signal.
    assert name in err or "SIGBUS" in err
    assert not any(exists(name) for name in run_names(record))
