"""X14 secrets stay where they belong, X15 signals go to proven processes, X16 sizes have limits."""

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch_rig import run_names
from synthetic_job import collector, iteration, run_info

from unilab_core.launch.environment import child_environ
from unilab_core.telemetry.collector_fold import CollectorFold
from unilab_core.telemetry.records import RecordError
from unilab_core.telemetry.training_logger import TrainingLogger
from unilab_ipc.memory import local_segment
from unilab_ipc.metric_queue import RingReader, RingWriter, ring_dims
from unilab_ipc.peers import process_start_ticks
from unilab_ipc.registry import JobFolder
from unilab_ipc.segments import METRIC_QUEUE
from unilab_monitor.model import Batch, Model
from unilab_monitor.view import JobFacts

CANARY = "canary-5f1c77d2"
MIB = 1 << 20


def holds_canary(path):
    try:
        return CANARY.encode() in path.read_bytes()
    except OSError:
        return False


@pytest.mark.e2e
@pytest.mark.serial
def test_x14_a_secret_of_the_shell_is_in_no_artefact_argument_or_other_process(launch):
    secrets = {"WANDB_API_KEY": CANARY, "AWS_SECRET_ACCESS_KEY": CANARY, "GITHUB_TOKEN": CANARY}
    process = launch.start("algo.max_iterations=100000", **secrets)
    processes, _ = launch.running()
    names = run_names(launch.record("job.json"))
    collector_pid, learner_pid = processes["collector"][0], processes["learner"][0]
    for pid in (process.pid, collector_pid, learner_pid):
        assert CANARY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    environ = {
        pid: Path(f"/proc/{pid}/environ").read_bytes() for pid in (collector_pid, learner_pid)
    }
    assert CANARY.encode() not in environ[collector_pid]
    # The logger's own key, and nothing else, goes to the process that uses it.
    found = [entry for entry in environ[learner_pid].split(b"\0") if CANARY.encode() in entry]
    assert found == [f"WANDB_API_KEY={CANARY}".encode()]
    leaked = [name for name in names if holds_canary(Path("/dev/shm" + name))]
    leaked += [path for path in launch.registry.rglob("*.json") if holds_canary(path)]
    process.terminate()
    out, err = process.communicate()
    assert CANARY not in out + err
    files = [path for path in launch.tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert leaked + [path for path in files if holds_canary(path)] == []


def test_x14_the_panel_gets_what_it_draws_with_and_no_key():
    shell = {
        "TERM": "xterm",
        "NO_COLOR": "1",
        "HOME": "/h",
        "WANDB_API_KEY": CANARY,
        "AWS_SECRET": CANARY,
    }
    assert child_environ(shell, "monitor", {}) == {"TERM": "xterm", "NO_COLOR": "1", "HOME": "/h"}


def test_x15_stop_does_not_signal_a_process_that_only_has_the_pid(registry):
    code = "import time; print(1, flush=True); time.sleep(100)"
    victim = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    victim.stdout.readline()
    folder = JobFolder.claim("j", {})
    ticks = process_start_ticks(victim.pid)
    owner = {**folder.owner(), "pid": victim.pid, "start_ticks": ticks + 1}
    (folder.path / "owner.lock").write_text(json.dumps(owner))
    done = subprocess.run(
        [sys.executable, "-m", "unilab_core.launch", "stop", "j"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 6
    assert len(done.stderr.strip().splitlines()) == 1
    assert victim.poll() is None
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    folder.release({"state": "ended"})


def test_x16_a_million_metric_names_are_refused_or_bounded():
    """2,000 reports of 500 names each, all different: at most a window of them is remembered."""
    model = Model()
    folded = CollectorFold("sac")
    refused = 0
    before_bytes = resident_bytes()
    for first in (0, 1_000):  # as much as comes in while a monitor does not look
        ticks, reports = [], []
        for number in range(first, first + 1_000):
            names = {f"reward/term_{number}_{index}": 1.0 for index in range(500)}
            ticks.append(collector(number, number, rewards=names).record())
            reports.append(iteration(number, number, rewards=names).record())
            try:
                folded.update(ticks[-1:])
            except ValueError:
                refused += 1
        facts = JobFacts(job="j")
        model.fold(Batch(now_ns=first + 1_000, facts=facts, collector=ticks, learner=reports))
    assert refused > 1_900  # the learner takes no more names than a task can have
    assert resident_bytes() - before_bytes < 256 * MIB


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_x16_one_record_of_very_many_names_is_refused_as_a_whole():
    names = {f"reward/{index}": 1.0 for index in range(1_000)}
    with pytest.raises(RecordError, match="table of numbers"):
        CollectorFold("sac").update([collector(1, 1, rewards=names).record()])


def test_x16_a_record_larger_than_a_quarter_of_the_ring_is_dropped_and_counted():
    segment = local_segment(METRIC_QUEUE, ring_dims(1 << 16))
    writer, reader = RingWriter(segment), RingReader(segment)
    assert not writer.write({"text": "x" * (1 << 14)})
    assert writer.write({"n": 1})
    assert reader.read() == [{"n": 1}]
    assert (writer.dropped_count, reader.writer_dropped_count) == (1, 1)


def test_x16_a_flood_of_notes_costs_old_records_and_no_memory():
    segment = local_segment(METRIC_QUEUE, ring_dims(1 << 16))
    reader = RingReader(segment)
    logger = TrainingLogger(run_info(), [], RingWriter(segment))
    for number in range(20_000):
        logger.note(f"remark {number}")
    seen = reader.read(max_records=10_000)
    assert seen[-1]["text"] == "remark 19999"
    assert len(seen) + reader.lapped_count == 20_001  # and the run's own record
