"""Interleavings of the policy snapshot: copies in two halves, a crash at each point."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from unilab_ipc.memory import local_segment
from unilab_ipc.policy_snapshot import Snapshot, SnapshotReader, SnapshotWriter, snapshot_dims
from unilab_ipc.segments import POLICY_SNAPSHOT

Role = Iterator[str | Callable[[], bool]]

NUM_VALUES = 4


def values_of(version: int) -> np.ndarray:
    return np.full(NUM_VALUES, version, np.float32)


def writer_role(writer: SnapshotWriter, first: int, count: int) -> Role:
    for version in range(first, first + count):
        yield from writer._publish_steps(values_of(version), version, version)


def reader_role(reader: SnapshotReader, seen: list[tuple[int, list[float]]]) -> Role:
    found: list[Snapshot] = []
    yield from reader._fetch_steps(found)
    seen += [(snapshot.version, snapshot.values.tolist()) for snapshot in found]


def hasty_reader_role(reader: SnapshotReader, seen: list[tuple[int, list[float]]]) -> Role:
    """The planted fault: believes the copy without looking at the cell again."""
    view = reader._view
    cell = int(view["newest_seq"][()]) % 2
    yield "newest read"
    copy = view["values"][cell].tolist()
    yield "copied"
    seen.append((int(view["cell_version"][cell]), copy))


def build_with(reader_of: Callable[..., Role]) -> Callable[[], object]:
    def build() -> tuple[list[Role], Callable[[list[str]], None]]:
        segment = local_segment(POLICY_SNAPSHOT, snapshot_dims(NUM_VALUES))
        writer, reader = SnapshotWriter(segment), SnapshotReader(segment)
        writer.publish(values_of(0), 0, 0)
        seen: list[tuple[int, list[float]]] = []
        roles = [writer_role(writer, 1, 2), reader_of(reader, seen)]

        def check(fates: list[str]) -> None:
            assert all(values == [float(version)] * NUM_VALUES for version, values in seen)
            assert fates[1] != "done" or seen or reader.kept_count == 1
            # A reader that comes later finds the newest complete publication, if the writer did
            # not die inside the very cell it is in; it never finds anything else.
            late = SnapshotReader(segment)
            snapshot = late.try_fetch()
            assert snapshot is not None
            assert snapshot.values.tolist() == [float(snapshot.version)] * NUM_VALUES
            assert not seen or snapshot.version >= seen[-1][0]
            if fates[0] == "done":
                assert snapshot.version == 2

        return roles, check

    return build


def test_every_schedule_yields_whole_policies(explore: Callable[..., int]) -> None:
    assert explore(build_with(reader_role), crashes=False) > 100


@pytest.mark.slow
def test_a_crash_at_any_point_leaves_a_whole_policy(explore: Callable[..., int]) -> None:
    assert explore(build_with(reader_role)) > 1000


def test_the_explorer_finds_a_reader_that_does_not_look_again(
    explore: Callable[..., int],
) -> None:
    with pytest.raises(AssertionError):
        explore(build_with(hasty_reader_role), crashes=False)


def test_a_reader_that_is_always_outrun_gives_up_and_keeps_what_it_has() -> None:
    segment = local_segment(POLICY_SNAPSHOT, snapshot_dims(NUM_VALUES))
    writer, reader = SnapshotWriter(segment), SnapshotReader(segment)
    writer.publish(values_of(0), 0)
    assert reader.try_fetch() is not None
    writer.publish(values_of(1), 1)
    found: list[Snapshot] = []
    for step in reader._fetch_steps(found):
        if step == "half a copy":
            for version in (2, 3):
                writer.publish(values_of(version), version)
    assert found == []
    assert (reader.torn_count, reader.kept_count) == (4, 1)
    assert reader.last is not None
    assert reader.last.version == 0


@pytest.mark.parametrize("num_values", [0, -1])
def test_an_empty_policy_is_refused(num_values: int) -> None:
    with pytest.raises(ValueError, match="num_values"):
        snapshot_dims(num_values)
