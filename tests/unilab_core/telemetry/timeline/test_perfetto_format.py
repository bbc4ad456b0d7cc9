"""The files are Perfetto traces, as that project's own message definitions read them."""

import pytest

from unilab_core.telemetry.timeline.files import merge_parts, part_path, sequence_number
from unilab_core.telemetry.timeline.recorder import WRITER_CPU

UnknownFieldSet = pytest.importorskip("google.protobuf.unknown_fields").UnknownFieldSet
trace_pb2 = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
    reason="the package perfetto is not installed (pip install perfetto)",
)


@pytest.fixture
def trace(make_recorder, tmp_path):
    for role in ("collector", "learner"):
        path = part_path(tmp_path, "ab", role, 0)
        recorder = make_recorder(role, sequence_number(role, 0), path.name)
        lane, value = recorder.thread_lane(role), recorder.counter("depth", "slots")
        part = [("part", "", 2_000, 3_000)]
        lane.slice("work", 1_000, 5_000, tag="Perf/x", flows=(9,), ends=(8,), parts=part,
                   note=("tick", 4), cpu=(1_000_000, 3_000_000))  # fmt: skip
        value.set(6_000, 3)
        recorder.close()
    trace = trace_pb2.Trace()
    trace.ParseFromString(merge_parts(tmp_path, "ab").read_bytes())
    return trace


def test_nothing_in_the_file_is_unknown_to_the_format(trace):
    def check(message):
        assert len(UnknownFieldSet(message)) == 0
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                repeated = not hasattr(value, "ListFields")
                for each in value if repeated else [value]:
                    check(each)

    check(trace)


def test_packets_say_what_was_recorded(trace):
    for role, sequence in (("collector", 1), ("learner", 2)):
        packets = [p for p in trace.packet if p.trusted_packet_sequence_id == sequence]
        tracks = {
            p.track_descriptor.uuid: p.track_descriptor
            for p in packets
            if p.HasField("track_descriptor")
        }
        (process,) = (t for t in tracks.values() if t.HasField("process"))
        (thread,) = (t for t in tracks.values() if t.HasField("thread"))
        assert (process.process.process_name, thread.thread.thread_name) == (f"{role}-0", role)
        assert thread.parent_uuid == process.uuid
        (state,) = (p for p in packets if p.sequence_flags & 1)
        assert state.trace_packet_defaults.timestamp_clock_id == 3
        names = {e.iid: e.name for e in state.interned_data.event_names}
        tags = {e.iid: e.name for e in state.interned_data.event_categories}
        (cpu,) = (t.uuid for t in tracks.values() if t.name == WRITER_CPU)
        events = [
            p for p in packets if p.HasField("track_event") and p.track_event.track_uuid != cpu
        ]
        kinds = [(p.timestamp, p.track_event.type) for p in events]
        assert kinds == [(1_000, 1), (2_000, 1), (3_000, 2), (5_000, 2), (6_000, 4)]
        assert all(p.sequence_flags & 2 for p in events)
        begin, end, value = events[0].track_event, events[3].track_event, events[4].track_event
        assert (names[begin.name_iid], tags[begin.category_iids[0]]) == ("work", "Perf/x")
        assert (list(begin.flow_ids), list(begin.terminating_flow_ids)) == ([9], [8])
        notes = {a.name: a.uint_value or a.int_value for a in begin.debug_annotations}
        assert notes == {"tick": 4, "cpu_us": 2000}
        assert (begin.thread_time_absolute_us, end.thread_time_absolute_us) == (1000, 3000)
        assert value.counter_value == 3
        assert tracks[value.track_uuid].counter.unit_name == "slots"
    clocks = [p.clock_snapshot for p in trace.packet if p.HasField("clock_snapshot")]
    assert [sorted(c.clock_id for c in snapshot.clocks) for snapshot in clocks] == [[1, 3, 6]] * 2
