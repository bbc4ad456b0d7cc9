"""The broadcast ring: interleavings with a tiny ring, hostile bytes, writers that die."""

import random
from collections.abc import Callable, Iterator

import msgpack
import pytest

from unilab_ipc.memory import Segment, create_segment, local_segment, open_segment
from unilab_ipc.metric_queue import RingReader, RingWriter, ring_dims
from unilab_ipc.names import segment_name
from unilab_ipc.segments import METRIC_QUEUE

Role = Iterator[str | Callable[[], bool]]

# A record {"n": k} takes 4 bytes, its frame 24: four frames fill the ring.
TINY = {"B": 96}


def numbers(records: list[dict[str, int]]) -> list[int]:
    return [record["n"] for record in records]


def writer_role(writer: RingWriter, first: int, count: int) -> Role:
    for n in range(first, first + count):
        yield from writer._write_steps(msgpack.packb({"n": n}))


def reader_role(reader: RingReader, records: list[dict[str, int]]) -> Role:
    yield from reader._read_steps(2, records)


def build() -> tuple[list[Role], Callable[[list[str]], None]]:
    segment = local_segment(METRIC_QUEUE, TINY)
    writer = RingWriter(segment)
    reader = RingReader(segment)
    for n in range(4):
        writer.write({"n": n})
    early = numbers(reader.read(1))
    records: list[dict[str, int]] = []
    roles = [writer_role(writer, 4, 2), reader_role(reader, records)]

    def check(fates: list[str]) -> None:
        seen = early + numbers(records)
        if fates[1] == "done":
            seen += numbers(reader.read())
            lost = seen[-1] + 1 - len(seen)
            assert reader.lapped_count == lost
            assert reader.invalid_count == 0
        assert seen == sorted(set(seen))
        if fates == ["done", "done"]:
            assert seen[-1] == 5
        # Whatever happened to the writer, a new reader finds only whole records.
        late = RingReader(segment)
        rest = numbers(late.read())
        assert rest == list(range(rest[0], rest[-1] + 1)) if rest else fates[0] == "crashed"
        assert late.invalid_count == 0

    return roles, check


def test_every_schedule_reads_whole_records_and_counts_the_lost_ones(
    explore: Callable[..., int],
) -> None:
    assert explore(build, crashes=False) > 100


def test_a_writer_that_dies_at_any_point_leaves_whole_records(explore: Callable[..., int]) -> None:
    assert explore(build) > 500


def test_records_that_wrap_around_the_end_are_whole() -> None:
    segment = local_segment(METRIC_QUEUE, ring_dims(1024))
    writer, reader = RingWriter(segment), RingReader(segment)
    for n in range(500):
        record = {"n": n, "x": "y" * (n * 7 % 200)}
        assert writer.write(record)
        assert reader.read() == [record]
    assert (reader.lapped_count, reader.invalid_count) == (0, 0)


def test_cursors_pass_2_to_the_31() -> None:
    segment = local_segment(METRIC_QUEUE, ring_dims(1024))
    segment.view["cursor"][()] = 2**31 - 16
    segment.view["written_count"][()] = 2**31 - 1
    writer = RingWriter(segment)
    reader = RingReader(segment)
    for n in range(4):
        writer.write({"n": n})
    assert numbers(reader.read()) == [0, 1, 2, 3]


def test_a_second_writer_starts_behind_what_the_first_left() -> None:
    segment = local_segment(METRIC_QUEUE, ring_dims(1024))
    reader = RingReader(segment)
    RingWriter(segment).write({"n": 0})
    RingWriter(segment).write({"n": 1})
    assert numbers(reader.read()) == [1]
    assert reader.lapped_count == 1


def test_a_reader_that_was_there_before_the_first_record_counts_what_it_never_saw() -> None:
    segment = local_segment(METRIC_QUEUE, TINY)
    early = RingReader(segment)
    writer = RingWriter(segment)
    for n in range(10):
        writer.write({"n": n})
    late = RingReader(segment)
    assert numbers(early.read()) == numbers(late.read()) == [6, 7, 8, 9]
    assert early.lapped_count == 6
    assert late.lapped_count == 0  # what was lost before it came was never meant for it


def test_a_reader_needs_no_right_to_write(run_id: str) -> None:
    name = segment_name(run_id, "learner_metrics", 0)
    dims = ring_dims(1024)
    writer = RingWriter(create_segment(METRIC_QUEUE, name, dims))
    reader = RingReader(open_segment(METRIC_QUEUE, name, dims, readonly=True))
    writer.write({"n": 7})
    assert numbers(reader.read()) == [7]


def test_a_flipped_bit_is_counted_and_the_reader_goes_on() -> None:
    segment = local_segment(METRIC_QUEUE, ring_dims(1024))
    writer, reader = RingWriter(segment), RingReader(segment)
    writer.write({"n": 0})
    segment.view["data"][18] ^= 1
    assert reader.read() == []
    assert reader.invalid_count == 1
    writer.write({"n": 1})
    assert numbers(reader.read()) == [1]


@pytest.mark.parametrize(
    "raw",
    [
        msgpack.packb([1, 2]),
        msgpack.packb(5),
        msgpack.packb({"x": msgpack.ExtType(5, b"x")}),
        msgpack.packb({1: 2}),
        msgpack.packb({"x": "y"})[:-1],
        msgpack.packb({"x": 1}) + b"\0",
        b"\xc1",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1x\xdb\xff\xff\xff\xff",
        b"\x91" * 100,
        b"\x81\xa1\xff\x01",
    ],
)
def test_well_framed_nonsense_is_counted_not_raised(raw: bytes) -> None:
    segment = local_segment(METRIC_QUEUE, ring_dims(1024))
    writer, reader = RingWriter(segment), RingReader(segment)
    for _ in writer._write_steps(raw):
        pass
    writer.write({"n": 1})
    assert numbers(reader.read()) == [1]
    assert reader.invalid_count == 1
    assert reader.lapped_count == 0


def damage(segment: Segment, rng: random.Random) -> None:
    for word in ("cursor", "oldest_cursor", "written_count"):
        if rng.random() < 0.4:
            values = [-1, 0, 1, 8, 2**31, 2**62, -(2**63), rng.randrange(4096)]
            segment.view[word][()] = rng.choice(values)
    for _ in range(rng.randrange(20)):
        segment.view["data"][rng.randrange(segment.dims["B"])] = rng.randrange(256)


def test_readers_survive_any_bytes() -> None:
    rng = random.Random(7)
    for _ in range(500):
        segment = local_segment(METRIC_QUEUE, ring_dims(1024))
        writer = RingWriter(segment)
        reader = RingReader(segment, from_oldest=rng.random() < 0.5)
        for n in range(rng.randrange(60)):
            writer.write({"n": n})
        damage(segment, rng)
        for record in reader.read(max_records=50) + RingReader(segment).read(max_records=50):
            assert isinstance(record, dict)


def test_writing_never_raises_on_a_damaged_ring() -> None:
    rng = random.Random(8)
    segment = local_segment(METRIC_QUEUE, ring_dims(1024))
    writer = RingWriter(segment)
    for n in range(500):
        damage(segment, rng)
        assert writer.write({"n": n})
    for n in range(500, 550):
        writer.write({"n": n})
    assert numbers(RingReader(segment).read())[-1] == 549


@pytest.mark.parametrize("capacity_bytes", [0, 1000, 1028, -8])
def test_capacities_that_cannot_work_are_refused(capacity_bytes: int) -> None:
    with pytest.raises(ValueError, match="multiple of 8"):
        ring_dims(capacity_bytes)
