import json
import os
import time

import pytest

from unilab_core.telemetry.rl_trace.document import document
from unilab_core.telemetry.rl_trace.reader import ReaderSettings, TraceReader
from unilab_core.telemetry.rl_trace.snapshot import Depth
from unilab_core.telemetry.rl_trace.state_file import FileState, load_state, save_state, state_path

HEADER = f"{'=' * 20} Step 1 {'=' * 20}\n"
ROW = "j,sample,u/{},RUNNING,1787215030000,stage=ROLLOUT_START|global_step=1|detail=x\n"

TOP = {
    "progress": {
        "mode", "current_step", "total_steps", "elapsed_s", "mean_step_s", "eta_s", "session",
        "stages",
    },
    "flow": {"totals", "funnel", "transitions", "stuck", "steps"},
    "trajectories": {"count", "with_flow"},
    "health": {
        "torn", "continuation", "malformed", "glued", "duplicate", "unit_fixed", "negative",
        "unknown_stage", "inner_bad", "nul", "nan", "outlier", "noise", "ignored_files",
    },
}  # fmt: skip


def test_the_document_has_the_agreed_fields_even_when_empty(tmp_path):
    reader = TraceReader(tmp_path / "missing")
    assert reader.poll()
    text = json.dumps(document(reader.snapshot()), allow_nan=False)
    assert "\n" not in text
    table = json.loads(text)
    for name, fields in TOP.items():
        assert fields <= set(table[name])
    assert table["progress"]["current_step"] is None
    assert table["flow"]["transitions"]["e2e"]["p50"] is None
    assert table["missing_folders"] == ["progress", "sample", "trajectory"]


def test_lines_that_arrive_while_following_have_arrival_times(trace):
    trace.write("progress", **{"20260820-16": HEADER})
    reader = trace.read()
    trace.append("progress", "20260820-16", "start update actor\n")
    reader.poll()
    time.sleep(0.05)
    trace.append("progress", "20260820-16", "end update actor\n")
    reader.poll()
    (stage,) = [s for s in reader.snapshot().progress.stages if s.name == "update actor"]
    assert stage.time_source == "arrival"
    assert 0.04 < stage.duration_s < 5.0


def test_arrival_times_survive_a_restart_of_the_monitor(trace, tmp_path):
    state = tmp_path / "state" / "s.json"
    trace.write("progress", **{"20260820-16": HEADER})
    reader = trace.read(state_path=state)
    for edge in ("start", "end"):
        trace.append("progress", "20260820-16", f"{edge} update actor\n")
        reader.poll()
        time.sleep(0.03)
    before = reader.snapshot().progress.stages
    assert reader.save()
    assert os.stat(state).st_mode & 0o777 == 0o600
    trace.append("progress", "20260820-16", "start sync params\n")  # while no monitor ran
    again = trace.read(state_path=state).snapshot().progress.stages
    assert [s for s in again if s.name == "update actor"] == [
        s for s in before if s.name == "update actor"
    ]
    (sync,) = [s for s in again if s.name == "sync params"]
    assert sync.time_source is None


def test_the_arrival_state_of_a_replaced_file_is_not_used(tmp_path):
    path = tmp_path / "s.json"
    assert save_state(path, {"a.log": FileState(7, 10, {0: 500})})
    assert save_state(path, {"a.log": FileState(7, 20, {0: 900, 5: 600})})
    assert load_state(path) == {"a.log": FileState(7, 20, {0: 500, 5: 600})}
    assert save_state(path, {"a.log": FileState(8, 1, {})})
    assert load_state(path) == {"a.log": FileState(8, 1, {})}
    path.write_text("{broken")
    assert load_state(path) == {}


def test_state_lives_in_the_users_state_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "x"))
    path = state_path(tmp_path / "trace")
    assert path.parent == tmp_path / "x" / "unilab"
    assert save_state(path, {})
    assert os.stat(path.parent).st_mode & 0o777 == 0o700


def test_a_state_folder_that_refuses_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    assert not save_state(tmp_path / "file" / "s.json", {})


def test_foreign_files_are_ignored_and_listed(trace):
    trace.write(a_pid1=ROW.format(0))
    for name in ("host-1.trace.jsonl", "sample/.nfs0001", "sample/x.csv.gz", "progress/.a.swp"):
        (trace.root / name).write_text("x")
    (trace.root / "sample" / "dir.csv").mkdir()
    snapshot = trace.read().snapshot()
    assert snapshot.damage.ignored_files == 5
    assert "sample/x.csv.gz" in snapshot.ignored
    assert snapshot.num_rows == 1


def test_links_out_of_the_directory_are_not_followed(trace, tmp_path):
    outside = tmp_path / "outside.csv"
    outside.write_text(ROW.format(1))
    trace.write(a_pid1=ROW.format(0))
    (trace.root / "sample" / "link-pid1.csv").symlink_to(outside)
    (trace.root / "sample" / "own-pid1.csv").symlink_to(trace.root / "sample" / "a-pid1.csv")
    snapshot = trace.read().snapshot()
    assert snapshot.flow.totals["trajs"] == 1
    assert snapshot.damage.ignored_files == 1
    assert snapshot.damage.duplicate == 1


def test_a_fifo_does_not_stop_the_reader(trace):
    trace.write(a_pid1=ROW.format(0))
    os.mkfifo(trace.root / "sample" / "f-pid1.csv")
    assert trace.read().snapshot().num_rows == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_counted(trace):
    trace.write(a_pid1=ROW.format(0), b_pid1=ROW.format(1))
    os.chmod(trace.root / "sample" / "b-pid1.csv", 0)
    snapshot = TraceReader(trace.root)
    snapshot.poll()
    assert snapshot.snapshot().damage.unreadable > 0


def test_a_file_that_shrinks_or_is_replaced_is_read_again(trace):
    trace.write(a_pid1=ROW.format(0) + ROW.format(1))
    reader = trace.read()
    trace.write(a_pid1=ROW.format(2))
    while not reader.poll():
        pass
    snapshot = reader.snapshot()
    assert (snapshot.num_rows, snapshot.damage.rewritten) == (1, 1)
    assert reader.trace("u/2") is not None
    assert reader.trace("u/0") is None


def test_a_vanished_file_keeps_its_rows(trace):
    trace.write(a_pid1=ROW.format(0), b_pid1=ROW.format(1))
    reader = trace.read()
    os.unlink(trace.root / "sample" / "a-pid1.csv")
    reader.poll()
    assert reader.snapshot().num_rows == 2
    assert reader.trace("u/0").events == ()


def test_appended_rows_of_new_and_old_files_are_seen(trace):
    trace.write(a_pid1=ROW.format(0))
    reader = trace.read()
    trace.append("sample", "a_pid1", ROW.format(1))
    trace.write(b_pid1=ROW.format(2))
    assert reader.poll()
    assert reader.snapshot().flow.totals["trajs"] == 3


def test_a_shallow_snapshot_keeps_the_figures_above_it(trace):
    rows = "j,sample,u/{n},RUNNING,178721503000{n},stage=ROLLOUT_START|global_step=1|detail=x\n"
    sampled = "j,sample,u/{n},RUNNING,178721503100{n},stage=BUFFER_SAMPLE|global_step=1|"
    sampled += "detail=sampled_from_replay_buffer\n"
    trace.write(a_pid1=rows.format(n=0) + sampled.format(n=0))
    reader = trace.read()
    first = reader.snapshot(depth=Depth.LINES)
    assert first.flow.totals["trajs"] == 1  # there was nothing to keep
    trace.append("sample", "a_pid1", rows.format(n=1) + sampled.format(n=1))
    assert reader.poll()
    lines, steps, flow = (reader.snapshot(depth=depth) for depth in Depth)
    assert [one.num_rows for one in (lines, steps, flow)] == [4, 4, 4]
    assert [one.flow.totals["trajs"] for one in (lines, steps, flow)] == [1, 1, 2]
    assert [one.steps[0].trajs for one in (lines, steps, flow)] == [1, 2, 2]


def test_progress_lines_can_be_followed_alone(trace):
    trace.write("progress", log="Total training steps: 4\n")
    trace.write(a_pid1="j,sample,u/0,RUNNING,1787215030000,stage=ROLLOUT_START|detail=x\n")
    reader = trace.read()
    trace.append("progress", "log", f"{'=' * 20} Step 2 {'=' * 20}\n")
    trace.append("sample", "a_pid1", "j,sample,u/1,RUNNING,1787215030000,stage=S|detail=x\n")
    reader.poll_progress()
    snapshot = reader.snapshot()
    assert (snapshot.progress.current_step, snapshot.num_rows) == (2, 1)
    (trace.root / "progress" / "log.log").write_text("Total training steps: 7\n")
    reader.poll_progress()  # a file that was replaced is left to the next whole round
    assert reader.poll()
    assert reader.snapshot().progress.total_steps == 7
    assert reader.snapshot().progress.current_step is None


def test_a_run_summary_beside_the_root_says_that_the_run_has_ended(trace):
    trace.write(a_pid1=ROW.format(0) + "torn")
    (trace.root.parent / "run_summary.json").write_text("{}")
    snapshot = trace.read().snapshot()
    assert (snapshot.running, snapshot.damage.torn) == (False, 1)
    assert snapshot.flow.loss_pct == 100.0


def test_memory_limits_are_counted(trace):
    from unilab_core.telemetry.rl_trace.flow_store import Limits

    trace.write(a_pid1="".join(ROW.format(i) for i in range(10)))
    settings = ReaderSettings(limits=Limits(trajectories=4))
    reader = TraceReader(trace.root, settings)
    reader.poll()
    snapshot = reader.snapshot()
    assert snapshot.flow.totals["trajs"] == 4
    assert snapshot.damage.over_limit >= 6
