"""F05, F20, F21: what killed runs leave, and who wins a name. Real launchers, fake children."""

import json
import os
import signal

import pytest
from launch_rig import exists, gone, run_names, the_run_dir

pytestmark = [pytest.mark.e2e, pytest.mark.serial]


def test_f05_everything_killed_at_once_is_reclaimed_by_the_next_start(launch):
    process = launch.start("algo.max_iterations=100000")
    processes, _ = launch.running()
    record = launch.record("job.json")
    names = run_names(record)
    for pid, _ in [*processes.values(), (process.pid, 0)]:
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    for identity in processes.values():
        launch.until(lambda i=identity: gone(*i), "the end of every process")
    assert all(exists(name) for name in names)
    code, out, err = launch.run("algo.max_iterations=20")
    assert code == 0, err
    assert f"reclaimed {len(names)} objects of run {record['run_id']} (job-1)" in out
    assert not any(exists(name) for name in names)


def test_f21_of_launchers_started_in_the_same_moment_one_wins_and_the_others_touch_nothing(launch):
    started = [launch.start("algo.max_iterations=100000") for _ in range(4)]
    processes, run_dir = launch.running()
    losers = [p for p in started if p.pid != processes["launcher"][0]]
    for loser in losers:
        out, err = loser.communicate(timeout=60)
        assert loser.returncode == 3, err
        (line,) = err.strip().splitlines()
        assert str(processes["launcher"][0]) in line
        assert "run directory" not in out
    assert [path.name for path in run_dir.parent.iterdir()] == [run_dir.name]
    (winner,) = [p for p in started if p not in losers]
    assert winner.poll() is None
    winner.send_signal(signal.SIGTERM)
    out, _ = winner.communicate()
    assert winner.returncode == 143
    summary = json.loads((the_run_dir(out) / "run_summary.json").read_text())
    assert summary["status"] == "stopped"
