"""Parts of several processes become one file; a torn end does not reach it."""

import pytest

from unilab_core.telemetry.timeline.files import (
    merge_parts,
    merged_path,
    part_path,
    sequence_number,
    timeline_files,
    timeline_folder,
    whole_bytes,
)
from unilab_core.telemetry.timeline.reader import TimelineReader
from unilab_core.telemetry.timeline.wire import DamagedTraceError


@pytest.fixture
def parts(make_recorder, tmp_path):
    """Closed parts of run "ab" for both roles, one slice each."""
    for role in ("collector", "learner"):
        path = part_path(tmp_path, "ab", role, 0)
        recorder = make_recorder(role, sequence_number(role, 0), path.name)
        recorder.thread_lane(role).slice(f"{role} work", 10, 20, flows=(1,))
        recorder.close()
    return tmp_path


def names(path):
    return [(s.track.process, s.name) for s in TimelineReader([path]).slices()]


def test_one_file_holds_every_process(parts):
    merged = merge_parts(parts, "ab")
    assert merged == merged_path(parts, "ab")
    assert [path.name for path in parts.iterdir()] == ["timeline_ab.pftrace"]
    assert names(merged) == [("collector-0", "collector work"), ("learner-0", "learner work")]


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_the_torn_end_of_a_killed_process_is_left_out(parts, cut):
    torn = part_path(parts, "ab", "collector", 0)
    whole = torn.stat().st_size
    assert whole_bytes(torn) == whole
    with torn.open("r+b") as file:
        file.truncate(whole - cut)
    assert whole_bytes(torn) < whole - cut + 1
    merged = merge_parts(parts, "ab")
    reader = TimelineReader([merged])
    assert ("learner-0", "learner work") in [(s.track.process, s.name) for s in reader.slices()]
    assert not reader.torn


def test_other_runs_in_the_same_folder_are_left_alone(parts):
    other = part_path(parts, "cd", "learner", 0)
    other.write_bytes(b"")
    merge_parts(parts, "ab")
    assert other.exists()
    assert merge_parts(parts, "ef") is None


def test_the_files_of_a_source(parts, tmp_path):
    assert len(timeline_files(parts)) == 2  # the launcher was killed: parts stand for the whole
    merged = merge_parts(parts, "ab")
    assert timeline_files(parts) == [merged]
    assert timeline_files(merged) == [merged]
    part_path(parts, "cd", "learner", 0).write_bytes(b"")
    merge_parts(parts, "cd")
    with pytest.raises(FileNotFoundError, match="2 timelines"):
        timeline_files(parts)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no timeline"):
        timeline_files(tmp_path / "empty")


def test_the_folder_is_the_runs_own_unless_asked_otherwise(tmp_path):
    assert timeline_folder(tmp_path, None) == tmp_path / "trace"
    assert timeline_folder(tmp_path, str(tmp_path / "x")) == tmp_path / "x"


def test_processes_have_their_own_sequences():
    numbers = [sequence_number(r, k) for r in ("collector", "learner") for k in range(4)]
    assert len(set(numbers)) == 8
    assert min(numbers) > 0


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "other.pftrace"
    path.write_bytes(b"{}" * 100)
    with pytest.raises(DamagedTraceError, match="not a timeline"):
        names(path)
