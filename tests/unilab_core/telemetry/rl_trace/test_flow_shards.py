import random
import time

import pytest

from unilab_core.telemetry.rl_trace.flow_shards import ShardParser

H = "j,sample,u1/0,RUNNING,1787215030000,from=A|to=B|stage=S|global_step=1|"
ROW2 = "j,sample,u1/1,RUNNING,1787215031000,from=A|to=B|stage=S|global_step=1|detail=ok"


@pytest.fixture(autouse=True, params=[0, 64], ids=["in-arrays", "one-by-one"])
def few_lines(request, monkeypatch):
    """Every rule holds both for lines in arrays and for a few lines one by one."""
    monkeypatch.setattr(ShardParser, "few_lines", request.param)


def events(reader, name="u1/0"):
    view = reader.trace(name)
    return [] if view is None else view.events


def details(reader, name="u1/0"):
    return [event.detail for event in events(reader, name)]


def test_an_unfinished_last_line_waits_even_if_it_has_all_columns(trace):
    torn = "j,sample,u1/0,RUNNING,1787215031000,from=A|to=B|stage=TRAIN_UP"
    trace.write(a_pid1=f"{H}detail=ok\n{torn}")
    reader = trace.read()
    snapshot = reader.snapshot()
    assert (snapshot.num_rows, snapshot.pending_bytes, snapshot.damage.torn) == (1, 62, 0)
    trace.append("sample", "a_pid1", "DATE|global_step=1|detail=x\n")
    assert reader.poll()
    snapshot = reader.snapshot()
    assert (snapshot.num_rows, snapshot.pending_bytes) == (2, 0)
    assert [event.stage for event in events(reader)] == ["S", "TRAIN_UPDATE"]


def test_an_unfinished_last_line_of_an_ended_run_is_torn_and_not_parsed(trace):
    trace.write(a_pid1=f"{H}detail=ok\n{ROW2}")
    health = trace.figures(ended=True)["health"]
    assert (health["torn"], health["malformed"]) == (1, 0)
    assert trace.figures(ended=True)["rows"] == 1


@pytest.mark.parametrize(
    "detail", ["tool failed: a, b, c", "cmd=ls -la | grep x", "a=b|c=d|detail=again"]
)
def test_the_detail_is_the_rest_of_the_line_verbatim(trace, detail):
    reader = trace.write(a_pid1=f"{H}detail={detail}\n").read()
    (event,) = events(reader)
    assert (event.detail, event.source, event.target, event.stage) == (detail, "A", "B", "S")
    assert event.extra == ()
    assert reader.snapshot().damage.malformed == 0


def test_a_quoted_content_column_is_unquoted(trace):
    row = 'j,sample,u1/0,RUNNING,1787215030000,"from=A|to=B|stage=S|detail=said ""hi"", bye"\n'
    reader = trace.write(a_pid1=row).read()
    (event,) = events(reader)
    assert (event.source, event.detail) == ("A", 'said "hi", bye')


def test_lines_that_are_no_row_continue_the_detail_before(trace):
    reader = trace.write(
        a_pid1=f'{H}detail=Traceback\n  File "x.py", line 3\n{H}detail=ok\n'
    ).read()
    damage = reader.snapshot().damage
    assert (damage.continuation, damage.malformed) == (1, 0)
    assert sorted(details(reader)) == ['Traceback\n  File "x.py", line 3', "ok"]


def test_a_continuation_ends_after_64_lines_or_16_kib(trace):
    trace.write(a_pid1=f"{H}detail=x\n" + "more\n" * 70 + f"{H}detail=y\n" + "m" * 17000 + "\n")
    health = trace.figures()["health"]
    assert (health["continuation"], health["malformed"]) == (64, 7)


def test_a_broken_row_of_a_known_job_is_malformed(trace):
    trace.write(
        a_pid1=f"{H}detail=ok\nj,sample,u1/0,RUNNI\nj,sample,noslash,RUNNING,1787215030000,x\n"
    )
    health = trace.figures()["health"]
    assert (health["malformed"], health["continuation"]) == (2, 0)


def test_two_rows_on_one_line_are_both_read(trace):
    reader = trace.write(
        a_pid1=f"{H}detail=ok{ROW2}\nj,sample,u1/2,RUNNING,17872150{ROW2}x\n"
    ).read()
    snapshot = reader.snapshot()
    assert (snapshot.damage.glued, snapshot.damage.malformed, snapshot.num_rows) == (2, 1, 3)
    assert details(reader, "u1/0") == ["ok"]
    assert details(reader, "u1/1") == ["ok", "okx"]


def test_two_rows_on_one_line_are_both_read_beside_a_row_of_another_category(trace):
    other = "j,megatron,u1/0,RUNNING,1787215030000,rank=0"
    second = ROW2.replace("u1/1", "u1/2")
    reader = trace.write(a_pid1=f"{H}detail=a\n{H}detail=ok{second}\n{other}\n").read()
    snapshot = reader.snapshot()
    assert (snapshot.num_rows, snapshot.damage.glued) == (3, 1)


def test_a_quoted_row_is_the_duplicate_of_its_plain_form(trace):
    plain = f"{H}detail=ok\n"
    quoted = plain.replace("from=", '"from=').replace("ok", 'ok"')
    snapshot = trace.write(a_pid1=plain + quoted, b_pid2=quoted + plain).read().snapshot()
    assert (snapshot.num_rows, snapshot.damage.duplicate) == (1, 3)


def test_the_sample_id_is_split_at_its_last_slash(trace):
    reader = trace.write(a_pid1=H.replace("u1/0", "gsm8k/train/17/3") + "detail=x\n").read()
    assert reader.store.ids.uid_names == [b"gsm8k/train/17"]
    assert reader.store.ids.trajectory_indices.tolist() == [3]
    assert len(events(reader, "gsm8k/train/17/3")) == 1


@pytest.mark.parametrize(
    ("text", "ms", "fixed"),
    [
        ("1787215030.5", 1787215030500, 1),
        ("1787215030", 1787215030000, 1),
        ("1787215030500", 1787215030500, 0),
        ("1787215030500000", 1787215030500, 1),
        ("1787215030500000000", 1787215030500, 1),
    ],
)
def test_timestamps_of_other_units_are_converted_and_counted(trace, text, ms, fixed):
    reader = trace.write(
        a_pid1=f"j,sample,u1/0,complete,{text},stage=TRAIN_UPDATE|global_step=1|detail=done\r\n"
    ).read()
    snapshot = reader.snapshot()
    assert snapshot.damage.unit_fixed == fixed
    assert snapshot.flow.totals["trained"] == 1
    (event,) = events(reader)
    assert (event.unix_ms, event.status, event.detail) == (ms, "COMPLETE", "done")


def test_an_unknown_stage_without_detail_is_an_event_without_milestone(trace):
    reader = trace.write(
        a_pid1="j,sample,u1/0,RUNNING,1787215030000,stage=ENV_RESET|env_id=7|global_step=1\n"
    ).read()
    snapshot = reader.snapshot()
    assert snapshot.damage.unknown_stage == 1
    (event,) = events(reader)
    assert (event.detail, dict(event.extra)["env_id"]) == (None, "7")
    assert snapshot.flow.milestones["generated-not-dispatched"] == 1


def test_bom_header_and_nul_hole_leave_one_event(trace):
    head = b"\xef\xbb\xbfjob_id,cat,sample_id,sample_status,timestamp,content\n"
    trace.write(a_pid1=head + b"\0\0\0" + H.encode() + b"detail=x\n")
    figures = trace.figures()
    assert figures["rows"] == 1
    assert (figures["health"]["nul"], figures["health"]["malformed"]) == (1, 0)


def test_a_row_again_in_the_same_or_another_file_counts_once(trace):
    trace.write(a_pid1=f"{H}detail=x\n{H}detail=x\n", b_pid2=f"{H}detail=x\n")
    figures = trace.figures()
    assert (figures["rows"], figures["health"]["duplicate"]) == (1, 2)


def test_the_same_detail_at_another_time_is_another_event(trace):
    trace.write(a_pid1=f"{H}detail=x\n" + H.replace("030000", "030001") + "detail=x\n")
    figures = trace.figures()
    assert (figures["rows"], figures["health"]["duplicate"]) == (2, 0)


def test_a_damaged_row_is_the_duplicate_of_its_clean_form(trace):
    clean = H.replace("RUNNING", "COMPLETE") + "detail=x"
    odd = clean.replace("COMPLETE", "complete").replace("1787215030000", "1787215030.000")
    trace.write(a_pid1=f"{H}detail=first\n{clean}\n{odd}\r\n{clean}\r\n")
    figures = trace.figures()
    assert (figures["rows"], figures["health"]["duplicate"]) == (2, 2)


def row(stage, detail, ms, name="u1/0", status="RUNNING"):
    content = f"stage={stage}|global_step=1|detail={detail}"
    return f"j,sample,{name},{status},{1787215000000 + ms},{content}\n"


REWARD = row("ROLLOUT_REWARD", "reward_score_computed_score=1.0", 3000)
SAMPLED = row("BUFFER_SAMPLE", "sampled_from_replay_buffer", 4000)
TRAINED = row("TRAIN_UPDATE", "actor_parameters_updated", 5000, status="COMPLETE")


@pytest.mark.parametrize("first_is_later", [False, True])
def test_files_may_be_read_in_any_order(trace, first_is_later):
    late, early = ("a_pid1", "b_pid1") if first_is_later else ("b_pid1", "a_pid1")
    flow = trace.write(**{late: TRAINED, early: REWARD + SAMPLED}).figures()["flow"]
    assert flow["totals"]["trained"] == 1
    assert flow["transitions"]["buffer_wait"]["max"] == 1.0


def test_clock_skew_is_left_out_and_counted_until_an_offset_is_given(trace):
    late = row("ROLLOUT_REWARD", "reward_score_computed_score=1.0", 10_000)
    trace.write(b_pid1=late, a_pid1=row("BUFFER_SAMPLE", "sampled_from_replay_buffer", 7_000))
    figures = trace.figures()
    assert figures["flow"]["transitions"]["buffer_wait"]["n"] == 0
    assert figures["health"]["negative"] == 1
    figures = trace.figures(clock_offsets_ms={"b": -5000})
    assert figures["flow"]["transitions"]["buffer_wait"]["max"] == 2.0
    assert figures["health"]["negative"] == 0


def test_a_few_milliseconds_below_zero_count_as_zero(trace):
    trace.write(a_pid1=REWARD + row("BUFFER_SAMPLE", "sampled_from_replay_buffer", 2_960))
    figures = trace.figures()
    assert figures["flow"]["transitions"]["buffer_wait"]["max"] == 0.0
    assert figures["health"]["negative"] == 0


def test_an_older_running_row_after_complete_changes_nothing(trace):
    trace.write(a_pid1=TRAINED, b_pid1=row("ROLLOUT_TOOL", "tool", 100))
    totals = trace.figures()["flow"]["totals"]
    assert (totals["trained"], totals["in_flight"]) == (1, 0)


def test_synchronisations_show_in_every_open_trace_and_are_no_trajectory(trace):
    sync = row("SYNC_PARAMS", "weights_synced_global_step=1", 3500, name="*/sample")
    reader = trace.write(a_pid1=REWARD + SAMPLED + sync).read()
    assert reader.snapshot().flow.totals["trajs"] == 1
    assert [event.scope for event in events(reader)] == ["A", "C", "A"]
    assert reader.store.syncs == {0: {(1787215003500, 1)}}


def test_times_in_the_future_and_before_2001_stay_out_of_the_figures(trace):
    tomorrow = int(time.time() * 1000) + 86_400_000
    far = REWARD.replace("1787215003000", str(tomorrow)).replace("u1/0", "u1/1")
    old = REWARD.replace("1787215003000", "900000000000").replace("u1/0", "u1/2")
    reader = trace.write(a_pid1=REWARD + SAMPLED + far + old).read()
    snapshot = reader.snapshot()
    assert snapshot.damage.outlier == 2
    assert snapshot.flow.totals["trajs"] == 3
    assert snapshot.flow.totals["rewarded"] == 1
    assert snapshot.last_event_ms == 1787215004000
    assert len(events(reader, "u1/1")) == 1


def test_if_most_times_are_in_the_future_this_clock_is_wrong(trace):
    ahead = int(time.time() * 1000) + 40 * 86_400_000
    rows = REWARD.replace("1787215003000", str(ahead))
    rows += SAMPLED.replace("1787215004000", str(ahead + 1000))
    figures = trace.write(a_pid1=rows).figures()
    assert figures["flow"]["transitions"]["buffer_wait"]["max"] == 1.0
    assert figures["health"]["outlier"] == 0


def test_rows_of_another_category_show_in_the_trace_only(trace):
    opaque = "j,megatron,u1/0,RUNNING,1787215003500,from=fwd running|to=f|detail=rank=0\n"
    reader = trace.write(a_pid1=REWARD + opaque).read()
    assert reader.snapshot().flow.totals["trajs"] == 1
    assert reader.snapshot().num_rows == 1
    assert [event.scope for event in events(reader)] == ["A", "opaque"]


def test_a_score_that_is_no_number_is_counted(trace):
    trace.write(a_pid1=row("ROLLOUT_REWARD", "reward_score_computed_score=nan", 1))
    figures = trace.figures()
    assert figures["health"]["nan"] == 1
    assert figures["flow"]["totals"]["rewarded"] == 1


def test_rows_of_very_long_ids_and_details_are_read_one_by_one(trace):
    long = H.replace("u1/0", "u" * 600 + "/0") + "detail=" + "d" * 70_000 + "\n"
    reader = trace.write(a_pid1=f"{H}detail=x\n{long}{long}").read()
    snapshot = reader.snapshot()
    assert (snapshot.num_rows, snapshot.damage.duplicate) == (2, 1)
    (event,) = events(reader, "u" * 600 + "/0")
    assert event.detail.startswith("ddd")


def test_a_line_beyond_the_limit_is_skipped_and_counted(trace):
    trace.write(
        a_pid1=f"{H}detail=x\n".encode() + b"z" * (17 * 1024 * 1024) + b"\n" + f"{ROW2}\n".encode()
    )
    figures = trace.figures()
    assert (figures["rows"], figures["health"]["oversize"]) == (2, 1)


def test_many_jobs_in_one_file_are_all_counted(trace):
    rows = [
        f"job{i % 12},sample,u{i}/0,RUNNING,1787215030000,stage=ROLLOUT_ENV|detail=x\n"
        for i in range(240)
    ]
    reader = trace.write(a_pid1="".join(rows)).read()
    assert reader.store.job_rows == dict.fromkeys(range(12), 20)


def test_random_bytes_never_raise(trace):
    rng = random.Random(1)
    pieces = [
        b",",
        b"\n",
        b"\0",
        b"j,sample,",
        b"u/0,",
        b"RUNNING,",
        b"1787215030000,",
        b"|detail=",
        b"\xff\xfe",
        b'"',
        b"\r\n",
        b"{",
        b"Step 1 train started",
        b"\\u",
    ]
    for _ in range(20):
        data = b"".join(rng.choice(pieces) for _ in range(400)) + b"\n"
        trace.write(a_pid1=data).write("progress", p=data).write("trajectory", t=data)
        trace.figures()
