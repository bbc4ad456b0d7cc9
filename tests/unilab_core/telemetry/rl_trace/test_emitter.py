import contextlib
import io
import json
import os
import re
import subprocess
import sys
import time

import pytest

from unilab_core.telemetry.rl_trace import formats
from unilab_core.telemetry.rl_trace.emitter import RlTraceEmitter
from unilab_core.telemetry.rl_trace.formats import LineStyle, Stage, Status, TraceTarget
from unilab_core.telemetry.rl_trace.line_files import LineFile, LineFiles, Lines
from unilab_core.telemetry.rl_trace.trajectory_record import TrajectoryRecord, TurnRecord

SEED_ROWS = (
    "dlc-job-example,sample,prompt-001/sample,RUNNING,1787215029000,from=DataLoader|"
    "to=PPOTrainerV1|stage=DATA_PREPROCESS|global_step=1|detail=uid_generated\n"
    "dlc-job-example,sample,prompt-001/0,RUNNING,1787215030700,from=RewardLoopWorker|"
    "to=AgentLoopWorker|stage=ROLLOUT_REWARD|global_step=1|"
    "detail=reward_score_computed_score=1.0\n"
    "dlc-job-example,sample,prompt-001/0,COMPLETE,1787215060000,from=ActorRolloutWorker|"
    "to=PPOTrainerV1|stage=TRAIN_UPDATE|global_step=1|detail=actor_parameters_updated\n"
    "dlc-job-example,sample,*/sample,RUNNING,1787215061000,from=CheckpointEngineManager|"
    "to=RolloutReplica|stage=SYNC_PARAMS|global_step=1|detail=weights_synced_global_step=1\n"
)
SEED_TRAJECTORY = (
    r'{"prompt_uid":"prompt-001","sample_index":0,"raw_message":"{\"request_id\":\"0\",'
    r"\"n_samples\":4,\"global_step\":1,\"created_at_ts\":1787215072.088,"
    r"\"completed_at_ts\":1787215073.421,\"total_time_ms\":1332.52,\"turns\":[{\"turn_index\":0,"
    r"\"prompt_token_count\":87,\"completion_text\":\"Call the search tool.\","
    r"\"completion_token_count\":6,\"finish_reason\":\"stop\","
    r"\"observation_text\":\"Search completed.\",\"start_ts\":1787215072.120,"
    r"\"end_ts\":1787215073.321,\"turn_total_time_ms\":1201.45,\"completion_time_ms\":891.30,"
    r"\"observation_time_ms\":310.15,\"sglang_queue_time_ms\":12.40,\"sglang_ttft_ms\":35.20,"
    r"\"sglang_prefill_ms\":18.60,\"sglang_decode_time_ms\":825.10,"
    r"\"template_overhead_tokens\":null,\"template_overhead_text\":null}],"
    r"\"initial_prompt_text\":\"Complete the task with available tools.\","
    r"\"agent_metrics\":{\"generate_sequences\":0.891,\"tool_calls\":0.310,"
    r'\"reward_score\":1.0,\"num_preempted\":0}}"}' + "\n"
)
SEED_PROGRESS = """\
Total training steps: 100
==================== Step 1 ====================
Step 1 rollout started
Trainer: try to load global batch@1, chunk[0/0] from replay_queue
Trainer: successfully load global batch@1, chunk[0/0] from replay_queue
Step 1 rollout finished
Task prompt-001/0 is completed, score=1.0 status=Finished
disagg: start compute reward
disagg: end compute reward
disagg: start compute log prob
disagg: end compute log prob
disagg: start compute adv
disagg: end compute adv
Step 1 train started
disagg: start update actor
disagg: end update actor
Step 1 train finished
disagg: start sync params
disagg: end sync params
"""


def emitter_at(root, **kwargs):
    return RlTraceEmitter(TraceTarget(root, echo_progress=False), job_id="j", **kwargs)


def files(root, pattern):
    return sorted(root.glob(pattern))


def seed_record():
    turn = TurnRecord(
        prompt_token_count=87,
        completion_text="Call the search tool.",
        completion_token_count=6,
        finish_reason="stop",
        observation_text="Search completed.",
        start_ts=1787215072.120,
        end_ts=1787215073.321,
        completion_time_ms=891.30,
        observation_time_ms=310.15,
        queue_time_ms=12.40,
        ttft_ms=35.20,
        prefill_ms=18.60,
        decode_time_ms=825.10,
    )
    return TrajectoryRecord(
        prompt_uid="prompt-001",
        sample_index=0,
        n_samples=4,
        global_step=1,
        created_at_ts=1787215072.088,
        completed_at_ts=1787215073.421,
        total_time_ms=1332.52,
        turns=[turn],
        initial_prompt_text="Complete the task with available tools.",
        reward_score=1.0,
        num_preempted=0,
    )


def write_seed_progress(emitter):
    emitter.total_steps(100)
    emitter.step_header(1)
    emitter.rollout_window(1, "started")
    emitter.batch_load("try to", 1)
    emitter.batch_load("successfully", 1)
    emitter.rollout_window(1, "finished")
    emitter.task_completed("prompt-001", 0, 1.0)
    for stage in ("compute reward", "compute log prob", "compute adv"):
        with emitter.stage(stage):
            pass
    emitter.train_window(1, "started")
    with emitter.stage("update actor"):
        pass
    emitter.train_window(1, "finished")
    with emitter.stage("sync params"):
        pass
    emitter.throughput(10.0)


def test_the_documents_own_rows_are_written_byte_for_byte(tmp_path):
    emitter = RlTraceEmitter(TraceTarget(tmp_path, False), job_id="dlc-job-example")
    emitter.prompt_event(
        "prompt-001",
        Stage.DATA_PREPROCESS,
        1,
        source="DataLoader",
        target="PPOTrainerV1",
        detail="uid_generated",
        unix_ms=1787215029000,
    )
    emitter.trajectory_event(
        "prompt-001",
        0,
        Stage.ROLLOUT_REWARD,
        1,
        source="RewardLoopWorker",
        target="AgentLoopWorker",
        detail="reward_score_computed_score=1.0",
        unix_ms=1787215030700,
    )
    emitter.trajectory_event(
        "prompt-001",
        0,
        Stage.TRAIN_UPDATE,
        1,
        source="ActorRolloutWorker",
        target="PPOTrainerV1",
        detail="actor_parameters_updated",
        status=Status.COMPLETE,
        unix_ms=1787215060000,
    )
    emitter.global_event(
        Stage.SYNC_PARAMS,
        1,
        source="CheckpointEngineManager",
        target="RolloutReplica",
        detail="weights_synced_global_step=1",
        unix_ms=1787215061000,
    )
    emitter.close()
    (path,) = files(tmp_path, "sample/*")
    assert path.read_text() == SEED_ROWS
    assert re.fullmatch(r".+-pid\d+\.csv", path.name)


def test_the_documents_own_trajectory_is_written_byte_for_byte(tmp_path):
    emitter = emitter_at(tmp_path)
    emitter.trajectory(seed_record())
    emitter.close()
    (path,) = files(tmp_path, "trajectory/*")
    assert path.read_text() == SEED_TRAJECTORY
    assert re.fullmatch(rf"trajectory_{os.getpid()}_\d+\.jsonl", path.name)


def test_the_documents_own_progress_is_written_byte_for_byte(tmp_path):
    emitter = emitter_at(tmp_path)
    write_seed_progress(emitter)
    emitter.close()
    (path,) = files(tmp_path, "progress/*")
    assert path.read_text() == SEED_PROGRESS
    assert re.fullmatch(r"\d{8}-\d{2}\.log", path.name)


def test_the_colocated_style_has_no_prefix_and_has_throughput_and_epoch(tmp_path):
    emitter = emitter_at(tmp_path, style=LineStyle.COLOCATE)
    emitter.step_header(3, epoch=1, batches=12)
    with emitter.stage("generation"):
        pass
    emitter.throughput(1234.5)
    emitter.close()
    (path,) = files(tmp_path, "progress/*")
    assert path.read_text().splitlines() == [
        "==================== Step 3 Epoch 1 Batch 12 ====================",
        "start generation",
        "end generation",
        "Generation throughput: 1234.5 tokens/s",
    ]


def test_root_comes_from_the_variable_then_the_run_then_nowhere(tmp_path):
    variable = {"VERL_TRACE_DIR": str(tmp_path / "x")}
    assert formats.trace_target(False, None, variable) == TraceTarget(tmp_path / "x", True)
    assert formats.trace_target(True, tmp_path, variable) == TraceTarget(tmp_path / "x", True)
    assert formats.trace_target(True, tmp_path, {}) == TraceTarget(tmp_path / "rl_trace", False)
    assert formats.trace_target(False, tmp_path, {}) is None


def test_progress_also_goes_to_the_stream_when_asked(tmp_path):
    stream = io.StringIO()
    emitter = RlTraceEmitter(TraceTarget(tmp_path, True), job_id="j", echo=stream)
    write_seed_progress(emitter)
    emitter.close()
    assert stream.getvalue() == SEED_PROGRESS


def test_without_a_root_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VERL_TRACE_DIR", raising=False)
    emitter = RlTraceEmitter.from_environment(job_id="j")
    write_seed_progress(emitter)
    emitter.trajectory(seed_record())
    emitter.weights_synced(1, source="a", target="b")
    emitter.close()
    assert not emitter.enabled
    assert list(tmp_path.iterdir()) == []


def test_exact_times_name_file_offset_and_milliseconds(tmp_path):
    times = tmp_path / "progress.tsidx"
    emitter = emitter_at(tmp_path / "rl_trace", times_path=times, trace_every=16)
    before_ms = time.time_ns() // 1_000_000
    emitter.total_steps(3)
    emitter.step_header(1)
    emitter.close()
    after_ms = time.time_ns() // 1_000_000
    (path,) = files(tmp_path, "rl_trace/progress/*")
    head, *lines = times.read_text().splitlines()
    assert head == "# trace_every=16"
    assert [line.split(",")[:2] for line in lines] == [[path.name, "0"], [path.name, "24"]]
    assert all(before_ms - 1 <= int(line.split(",")[2]) <= after_ms for line in lines)
    assert emitter.traces_env(32)
    assert not emitter.traces_env(33)


def test_line_breaks_and_nan_cannot_break_a_line(tmp_path):
    emitter = emitter_at(tmp_path)
    emitter.trajectory_event(
        "u", 0, "X", 1, source="a", target="b", detail="a\r\nb\nc\0d", unix_ms=1787215030700
    )
    emitter.trajectory(
        TrajectoryRecord(
            prompt_uid="u\ud83d",
            sample_index=0,
            created_at_ts=1.0,
            completed_at_ts=2.5,
            reward_score=float("nan"),
            turns=[
                TurnRecord(
                    completion_text="\ud83d\n",
                    tool_calls=[{"name": "t", "ms": float("inf"), "ok": True}],
                )
            ],
        )
    )
    emitter.close()
    (sample,) = files(tmp_path, "sample/*")
    assert sample.read_text().endswith(r"|detail=a\nb\ncd" + "\n")
    (path,) = files(tmp_path, "trajectory/*")
    (line,) = path.read_text().splitlines()
    inner = json.loads(json.loads(line)["raw_message"])
    assert inner["agent_metrics"]["reward_score"] is None
    assert inner["total_time_ms"] == 1500.0
    assert inner["turns"][0]["tool_calls"] == [{"name": "t", "ms": None, "ok": True}]


def test_a_refusing_disk_costs_counted_lines_and_nothing_else(tmp_path):
    (tmp_path / "sample").write_text("a file where the folder should be")
    emitter = emitter_at(tmp_path)
    for number in range(5):
        emitter.trajectory_event("u", number, "X", 1, source="a", target="b")
    emitter.close()
    assert emitter.counters.dropped == 5
    assert emitter.counters.written == 0


def test_values_that_cannot_be_encoded_are_counted(tmp_path):
    emitter = emitter_at(tmp_path)
    emitter.trajectory(
        TrajectoryRecord(prompt_uid=object(), sample_index=0, created_at_ts=0, completed_at_ts=0)
    )
    assert emitter.counters.dropped_error == 1


def test_a_full_queue_drops_and_counts_without_waiting(tmp_path):
    lines = LineFiles(max_pieces=2, max_bytes=100)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    stuck = LineFile(lambda _: fifo)  # opening a FIFO without a reader waits for ever
    assert lines.put(stuck, b"taken by the thread\n", 0.0)
    deadline = time.monotonic() + 5.0
    while lines._queue and time.monotonic() < deadline:
        time.sleep(0.001)
    accepted = [lines.put(stuck, b"x\n", 0.0) for _ in range(5)]
    assert accepted == [True, True, False, False, False]
    assert lines.counters.dropped_full == 3
    started = time.monotonic()
    lines.close(timeout_s=0.1)
    assert time.monotonic() - started < 5.0
    assert lines.counters.dropped_closed == 2
    assert not lines.put(stuck, b"x\n", 0.0)
    os.close(os.open(fifo, os.O_RDWR))


def test_a_line_taken_in_part_is_closed_before_the_next(tmp_path, monkeypatch):
    file = LineFile(lambda _: tmp_path / "f")
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, data[:3]))
    assert file.write([Lines(b"half of it\n", 0.0)]) == 0
    monkeypatch.setattr(os, "write", real_write)
    assert file.write([Lines(b"not tried so soon\n", 0.0)]) == 0
    file._retry_at_s = 0.0
    assert file.write([Lines(b"whole\n", 0.0)]) == 1
    file.close()
    assert (tmp_path / "f").read_bytes() == b"hal\nwhole\n"


def test_of_lines_written_together_the_whole_ones_count_and_are_stamped(tmp_path, monkeypatch):
    stamps = []
    file = LineFile(lambda _: tmp_path / "f", after_write=lambda _, found: stamps.extend(found))
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, data[:8]))
    lines = [Lines(b"one\n", 1.0), Lines(b"two\n", 2.0), Lines(b"three\n", 3.0)]
    assert file.write(lines) == 2
    file.close()
    assert (tmp_path / "f").read_bytes() == b"one\ntwo\n"
    assert stamps == [(0, 1.0), (4, 2.0)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_writing_thread_costs_counted_lines_and_nothing_else(tmp_path):
    class Broken:
        def write(self, pieces):
            raise MemoryError

        def close(self):
            pass

    lines = LineFiles()
    lines.put(Broken(), b"ends the thread\n", 0.0)
    lines._thread.join(10.0)
    good = LineFile(lambda _: tmp_path / "f")
    assert not lines.put(good, b"one\ntwo\n", 0.0)
    assert lines.counters.dropped_error == 2
    lines.close(timeout_s=0.1)


def test_events_of_several_trajectories_are_rows_of_their_own(tmp_path):
    emitter = emitter_at(tmp_path)
    emitter.trajectory_events(
        "u", [0, 64], "X", 3, source="a", target="b", details=["p", "q"], unix_ms=1787215030700
    )
    emitter.trajectory_events("u", [], "X", 3, source="a", target="b", details=["p"])
    emitter.close()
    (path,) = files(tmp_path, "sample/*")
    row = "j,sample,u/{},RUNNING,1787215030700,from=a|to=b|stage=X|global_step=3|detail={}\n"
    assert path.read_text() == row.format(0, "p") + row.format(64, "q")
    assert emitter.counters.written == 2


def test_a_blocked_standard_output_does_not_hold_up_the_files(tmp_path):
    read_fd, write_fd = os.pipe()
    stream = open(write_fd, "w")  # noqa: SIM115 - closed while the reader is gone
    emitter = RlTraceEmitter(TraceTarget(tmp_path, True), job_id="j", echo=stream)
    for step in range(4_000):  # more than a pipe holds
        emitter.step_header(step)
    assert emitter._files.flush(20.0)
    (path,) = files(tmp_path, "progress/*")
    assert path.read_text().count("\n") == 4_000
    emitter.close(timeout_s=0.1)
    assert emitter.counters.dropped == 0
    os.close(read_fd)  # the stuck thread gets an error instead of a reader
    emitter._echoes._thread.join(10.0)
    with contextlib.suppress(BrokenPipeError):
        stream.close()


def test_the_file_follows_the_hour_of_writing(tmp_path):
    file = LineFile(lambda unix_s: tmp_path / formats.progress_file_name(unix_s))
    assert file.write([Lines(b"one\n", 3_599.0), Lines(b"two\n", 3_601.0)]) == 2
    file.close()
    assert [p.read_bytes() for p in sorted(tmp_path.iterdir())] == [b"one\n", b"two\n"]


def test_a_forked_child_writes_files_of_its_own(tmp_path):
    emitter = emitter_at(tmp_path)
    emitter.trajectory_event("u", 0, "X", 1, source="a", target="b")
    emitter.flush()
    pid = os.fork()
    if pid == 0:
        emitter.trajectory_event("u", 1, "X", 1, source="a", target="b")
        emitter.close()
        os._exit(0)
    os.waitpid(pid, 0)
    emitter.close()
    texts = {p.name: p.read_text() for p in files(tmp_path, "sample/*")}
    assert len(texts) == 2
    (child_name,) = [name for name in texts if name.endswith(f"-pid{pid}.csv")]
    assert texts[child_name].count("\n") == 1
    assert ",u/1," in texts[child_name]


def test_two_files_of_one_pid_never_share_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 1_787_215_072_088_000_000)
    first, second = emitter_at(tmp_path), emitter_at(tmp_path)
    first.trajectory(seed_record())
    first.close()
    second.trajectory(seed_record())
    second.close()
    assert (first.counters.written, second.counters.written) == (1, 0)
    (path,) = files(tmp_path, "trajectory/*")
    assert path.name == f"trajectory_{os.getpid()}_1787215072088.jsonl"


@pytest.mark.parametrize("module", ["emitter", "trajectory_record", "line_files", "formats"])
def test_writers_load_the_standard_library_only(module):
    code = (
        f"import sys; import unilab_core.telemetry.rl_trace.{module}; "
        "print([m for m in ('numpy', 'msgpack', 'torch', 'textual') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
