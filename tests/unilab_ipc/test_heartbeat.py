"""Rows of the heartbeat board."""

import os

import pytest

from unilab_ipc.clock import ManualClock
from unilab_ipc.errors import IpcError
from unilab_ipc.heartbeat import PHASES, HeartbeatBoard, board_dims
from unilab_ipc.memory import create_segment, local_segment, open_segment
from unilab_ipc.names import segment_name
from unilab_ipc.peers import process_start_ticks
from unilab_ipc.segments import HEARTBEAT


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000)


@pytest.fixture
def board(clock: ManualClock) -> HeartbeatBoard:
    return HeartbeatBoard(local_segment(HEARTBEAT, board_dims(2)), clock)


def test_rows_are_launcher_then_pairs_by_rank(board: HeartbeatBoard) -> None:
    assert [(row.role, row.rank) for row in board.rows()] == [
        ("launcher", 0),
        ("collector", 0),
        ("learner", 0),
        ("collector", 1),
        ("learner", 1),
    ]
    assert {row.state for row in board.rows()} == {"missing"}


def test_a_registered_role_can_be_identified(board: HeartbeatBoard) -> None:
    board.role("learner", 1).register()
    row = board.row("learner", 1)
    assert (row.pid, row.start_ticks) == (os.getpid(), process_start_ticks(os.getpid()))
    assert row.state == "alive"
    assert not row.peer().open().is_dead()
    assert board.row("collector", 1).state == "missing"


def test_registering_a_process_that_does_not_exist_fails(board: HeartbeatBoard) -> None:
    with pytest.raises(IpcError, match="no process"):
        board.role("learner", 0).register(2**22 + 1)
    assert board.row("learner", 0).state == "missing"


def test_phase_progress_and_counts_are_published(board: HeartbeatBoard, clock: ManualClock) -> None:
    beat = board.role("collector", 0)
    beat.phase("training/learner_action_wait", awaits="learner")
    clock.advance_ns(5)
    beat.advance()
    beat.advance()
    beat.counts(iteration=3, env_steps=2**40)
    beat.report_signal(15)
    row = board.row("collector", 0)
    assert (row.phase, row.awaits) == ("training/learner_action_wait", "learner")
    assert (row.progress, row.beat_ns) == (2, 1005)
    assert (row.iteration, row.env_steps, row.signal) == (3, 2**40, 15)
    beat.phase("training/env_step")
    assert board.row("collector", 0).awaits is None


def test_every_phase_reads_back(board: HeartbeatBoard) -> None:
    beat = board.role("collector", 1)
    for name in PHASES:
        beat.phase(name)
        assert board.row("collector", 1).phase == name
    assert len(set(PHASES)) == len(PHASES)


def test_phases_of_the_manifest_are_declared() -> None:
    startup = "begin memory_budget cuda_preflight replay_resources inference_resources logger"
    startup += " dp_init learner_prepare collector_start"
    training = "startup_complete wait_for_inference_request learner_inference inference_response"
    training += " replay_prepare learner_update"
    finalize = "collector_quiesce collector_metrics_drain replay_pipeline_close"
    finalize += " replay_ingress_snapshot logger_finish"
    for stage, names in (("startup", startup), ("training", training), ("finalize", finalize)):
        assert {f"{stage}/{name}" for name in names.split()} <= set(PHASES)


@pytest.mark.parametrize("state", ["ended", "stopped", "failed"])
def test_the_end_is_a_state(board: HeartbeatBoard, state: str) -> None:
    beat = board.role("learner", 0)
    beat.register()
    beat.phase("training/learner_update", awaits="collector")
    beat.end(state)
    row = board.row("learner", 0)
    assert (row.state, row.phase, row.awaits) == (state, "ended", None)


def test_stop_level_only_rises(board: HeartbeatBoard) -> None:
    launcher = board.role("launcher", 0)
    assert board.stop_level() == 0
    launcher.request_stop(1)
    assert board.stop_level() == 1
    launcher.request_stop(2)
    launcher.request_stop(1)
    assert board.stop_level() == 2


def test_only_the_launcher_stops_the_job(board: HeartbeatBoard) -> None:
    with pytest.raises(IpcError, match="learner"):
        board.role("learner", 0).request_stop(1)


@pytest.mark.parametrize(
    ("role", "rank"), [("learner", 2), ("learner", -1), ("launcher", 1), ("monitor", 0)]
)
def test_rows_that_do_not_exist_are_refused(board: HeartbeatBoard, role: str, rank: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        board.row(role, rank)


def test_unknown_names_are_refused(board: HeartbeatBoard) -> None:
    beat = board.role("learner", 0)
    with pytest.raises(ValueError, match="'lunch'"):
        beat.phase("lunch")
    with pytest.raises(ValueError, match="'nobody'"):
        beat.phase("ended", awaits="nobody")
    with pytest.raises(ValueError, match="'asleep'"):
        beat.end("asleep")
    with pytest.raises(ValueError, match="ranks"):
        board_dims(0)


def test_garbage_in_the_memory_never_raises_in_a_reader() -> None:
    segment = local_segment(HEARTBEAT, board_dims(1))
    board = HeartbeatBoard(segment)
    for garbage in (-1, 2**62, -(2**63), 255):
        for array in segment.view.values():
            array[...] = garbage
        for row in board.rows():
            assert (row.phase, row.state, row.awaits) == ("unknown", "unknown", None)
        assert board.stop_level() in (0, 1, 2)


def test_monitors_read_the_board_through_a_read_only_mapping(run_id: str) -> None:
    name = segment_name(run_id, "heartbeat", 0)
    segment = create_segment(HEARTBEAT, name, board_dims(1))
    HeartbeatBoard(segment).role("launcher", 0).register()
    reader = open_segment(HEARTBEAT, name, board_dims(1), readonly=True)
    assert HeartbeatBoard(reader).row("launcher", 0).pid == os.getpid()
    assert int(reader.view["run_id"][0]) == int(run_id, 16)
