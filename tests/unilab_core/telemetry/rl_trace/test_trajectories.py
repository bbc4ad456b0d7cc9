import json
import resource
import subprocess
import sys

import pytest

from unilab_core.telemetry.rl_trace.trajectory_text import parse_line, parse_pieces
from unilab_core.telemetry.rl_trace.trajectory_view import trajectory_summary, trajectory_view

SEED = {
    "request_id": "0",
    "n_samples": 4,
    "global_step": 1,
    "created_at_ts": 1787215072.088,
    "completed_at_ts": 1787215073.421,
    "total_time_ms": 1332.52,
    "turns": [
        {
            "turn_index": 0,
            "prompt_token_count": 87,
            "completion_text": "Call the search tool.",
            "completion_token_count": 6,
            "finish_reason": "stop",
            "observation_text": "Search completed.",
            "start_ts": 1787215072.120,
            "end_ts": 1787215073.321,
            "turn_total_time_ms": 1201.45,
            "completion_time_ms": 891.30,
            "observation_time_ms": 310.15,
            "sglang_queue_time_ms": 12.40,
            "sglang_ttft_ms": 35.20,
            "sglang_prefill_ms": 18.60,
            "sglang_decode_time_ms": 825.10,
        }
    ],
    "agent_metrics": {"generate_sequences": 0.891, "tool_calls": 0.310, "reward_score": 1.0},
}


def line(inner, uid="p", index=0):
    raw = inner if isinstance(inner, str) else json.dumps(inner)
    return json.dumps({"prompt_uid": uid, "sample_index": index, "raw_message": raw}) + "\n"


def view_of(inner):
    parsed = parse_line(line(inner).encode())
    assert parsed is not None
    found = trajectory_view(parsed.outer, parsed.inner)
    assert found is not None
    return found


def test_the_documents_own_trajectory():
    view = view_of(SEED)
    assert (view.reward, len(view.turns), view.n_samples) == (1.0, 1, 4)
    assert (view.model_ms, view.env_ms, view.unattributed_ms) == (891.30, 310.15, 131.07)
    assert (view.prompt_tokens, view.completion_tokens) == (87, 6)
    (turn,) = view.turns
    assert (turn.ttft_ms, turn.engine_other_ms) == (35.2, 35.2)
    assert turn.tool_calls == ()


def test_a_cut_inner_message_keeps_the_row_and_its_text(trace):
    cut = '{"turns":[{"'
    reader = trace.write("trajectory", t=line(cut, "u", 3)).read()
    assert reader.snapshot().damage.inner_bad == 1
    view = reader.trajectories.view(0)
    assert (view.id, view.inner_ok, view.turns) == ("u/3", False, ())
    assert cut in json.loads(reader.trajectories.raw_text(0))["raw_message"]


def test_the_inner_message_may_be_an_object(trace):
    text = json.dumps({"prompt_uid": "u", "sample_index": 0, "raw_message": SEED}) + "\n"
    reader = trace.write("trajectory", t=text).read()
    assert reader.snapshot().damage.inner_bad == 0
    assert reader.trajectories.view(0).reward == 1.0


def test_numbers_that_are_not_finite_become_null_and_are_counted(trace):
    inner = '{"total_time_ms": NaN, "turns": [], "agent_metrics": {"reward_score": 1e999}}'
    reader = trace.write("trajectory", t=line(inner)).read()
    view = reader.trajectories.view(0)
    assert (view.total_ms, view.reward, view.inner_ok) == (None, None, True)
    assert reader.snapshot().damage.nan == 1


def test_a_lone_surrogate_becomes_a_replacement_character():
    view = view_of('{"initial_prompt_text": "x\\ud83dy"}')
    assert view.initial_prompt == "x\N{REPLACEMENT CHARACTER}y"
    view.initial_prompt.encode()


def test_absent_engine_times_are_absent_and_not_zero():
    turns = [{"completion_time_ms": 5.0, "sglang_ttft_ms": None}]
    view = view_of({"turns": turns})
    (turn,) = view.turns
    assert (turn.queue_ms, turn.ttft_ms, turn.engine_other_ms) == (None, None, None)
    assert (turn.env_ms, turn.total_ms, view.env_ms) == (None, 5.0, None)


def test_turns_are_ordered_and_of_doubles_the_later_end_stays():
    turns = [
        {"turn_index": 1, "end_ts": 5.0, "completion_text": "early"},
        {"turn_index": 0, "end_ts": 2.0},
        {"turn_index": 1, "end_ts": 6.0, "completion_text": "late"},
    ]
    view = view_of({"turns": turns})
    assert [(turn.index, turn.completion) for turn in view.turns] == [(0, None), (1, "late")]
    assert view.flags == ("doubled-turn", "turns-out-of-order")


def test_an_end_before_the_start_is_replaced_by_the_total():
    (turn,) = view_of(
        {"turns": [{"start_ts": 10.0, "end_ts": 9.0, "turn_total_time_ms": 2500.0}]}
    ).turns
    assert (turn.end_s, turn.flags) == (12.5, ("ends-before-start",))


def test_overlapping_turns_are_named():
    turns = [
        {"turn_index": 0, "start_ts": 1.0, "end_ts": 5.0},
        {"turn_index": 1, "start_ts": 4.0, "end_ts": 6.0},
    ]
    assert view_of({"turns": turns}).flags == ("turns-overlap",)


def test_tool_calls_are_read_where_present():
    calls = [{"name": "search", "args": {"q": 1}, "ok": False, "error": "boom", "ms": 3}]
    (turn,) = view_of({"turns": [{"tool_calls": calls}]}).turns
    (call,) = turn.tool_calls
    assert (call.name, call.args, call.ok, call.error, call.ms) == (
        "search", '{"q": 1}', False, "boom", 3.0
    )  # fmt: skip


def test_flow_and_trajectories_are_joined_from_both_sides(trace):
    row = "j,sample,{},RUNNING,1787215030000,stage=ROLLOUT_START|detail=x\n"
    trace.write(a_pid1=row.format("p/0") + row.format("q/0"))
    trace.write("trajectory", t=line(SEED, "p", 0) + line(SEED, "z", 0))
    figures = trace.figures()
    assert figures["trajectories"] == {"count": 2, "with_flow": 1}
    assert figures["flow"]["totals"]["trajs"] == 2


TURNS = [
    [{"turn_index": 0, "prompt_token_count": 3, "completion_token_count": 5}, {"turn_index": 1}],
    [{"turn_index": 1, "prompt_token_count": 3, "end_ts": 2.0}, {"turn_index": 1, "end_ts": 1.0}],
    [{"prompt_token_count": 3}, {"turn_index": 0, "prompt_token_count": "4"}, "damaged"],
    [{"turn_index": True, "completion_token_count": 2}, {"turn_index": 2.0}, {"turn_index": 2}],
    [{"turn_index": "1", "prompt_token_count": 1}, {"turn_index": 1, "prompt_token_count": 8}],
    "none",
    None,
]


@pytest.mark.parametrize("turns", TURNS)
def test_the_summary_of_a_line_says_what_its_view_says(turns):
    inner = {"turns": turns, "total_time_ms": 5, "n_samples": "4", "completed_at_ts": 7.5}
    inner |= {"global_step": 2, "agent_metrics": {"reward_score": 0.5}}
    outer = {"prompt_uid": 17, "sample_index": "3"}
    for one in (inner, None):
        view, summary = trajectory_view(outer, one), trajectory_summary(outer, one)
        for name in summary.__slots__:
            wanted = len(view.turns) if name == "num_turns" else getattr(view, name)
            assert getattr(summary, name) == wanted, name
    assert trajectory_summary({"prompt_uid": "u"}, inner) is None


def test_the_slowest_are_listed_in_order_however_they_arrive(trace, monkeypatch):
    monkeypatch.setattr("unilab_core.telemetry.rl_trace.trajectory_index.LISTED", 3)

    def lines(*totals):
        return "".join(
            json.dumps(
                {
                    "prompt_uid": f"u{total}",
                    "sample_index": 0,
                    "raw_message": {"total_time_ms": total},
                }
            )
            + "\n"
            for total in totals
        )

    trace.write("trajectory", t=lines(5, None, 1))
    reader = trace.read()

    def listed():
        return [(row.id, row.total_ms) for row in reader.snapshot().slow_trajectories]

    assert listed() == [("u5/0", 5.0), ("u1/0", 1.0), ("uNone/0", None)]
    for totals, wanted in (((9, 2), [9, 5, 2]), ((3, 4, 6, 7, 8, 0), [9, 8, 7]), ((1,), [9, 8, 7])):
        trace.append("trajectory", "t", lines(*totals))
        assert reader.poll()
        assert listed() == [(f"u{total}/0", float(total)) for total in wanted]


def test_the_same_line_in_two_files_counts_once(trace):
    trace.write("trajectory", t=line(SEED), u=line(SEED))
    figures = trace.figures()
    assert (figures["trajectories"]["count"], figures["health"]["duplicate"]) == (1, 1)


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 64, 10_000])
def test_a_line_in_pieces_is_the_line_as_a_whole(piece_bytes):
    text = 'quote " back \\ slash / \n\t \u4f60\u597d \U0001f600 end'
    inner = dict(
        SEED, initial_prompt_text=text, turns=[dict(SEED["turns"][0], completion_text=text)]
    )
    data = line(inner).encode()
    pieces = [data[i : i + piece_bytes] for i in range(0, len(data), piece_bytes)]
    whole, split = parse_line(data), parse_pieces(pieces, 1000)
    assert whole is not None
    assert split is not None
    assert split.inner == whole.inner
    assert not split.was_cut


@pytest.mark.parametrize("piece_bytes", [5, 64, 10_000])
def test_long_strings_are_cut_with_their_length(piece_bytes):
    inner = dict(SEED, initial_prompt_text='a"\\' * 100)
    data = line(inner).encode()
    pieces = [data[i : i + piece_bytes] for i in range(0, len(data), piece_bytes)]
    parsed = parse_pieces(pieces, 30)
    assert parsed is not None
    assert parsed.was_cut
    assert parsed.inner is not None
    assert parsed.inner["initial_prompt_text"].startswith('a"\\a"')
    assert "characters]" in parsed.inner["initial_prompt_text"]
    assert parsed.inner["turns"][0]["completion_time_ms"] == 891.30


def test_ids_after_the_message_and_damaged_long_lines():
    raw = json.dumps(json.dumps(SEED))
    late = f'{{"raw_message":{raw},"prompt_uid":"p","sample_index":2}}'.encode()
    parsed = parse_pieces([late], 100)
    assert parsed is not None
    assert (parsed.outer["sample_index"], parsed.inner["n_samples"]) == (2, 4)
    cut = line(SEED).encode()[:200]
    parsed = parse_pieces([cut], 100)
    assert parsed is not None
    assert (parsed.outer["prompt_uid"], parsed.inner) == ("p", None)
    assert parse_pieces([b"no json at all"], 100) is None


@pytest.mark.slow
def test_a_line_of_60_mb_costs_little_memory(tmp_path):
    folder = tmp_path / "t" / "trajectory"
    folder.mkdir(parents=True)
    with open(folder / "trajectory_1_2.jsonl", "w") as stream:
        text = 'w\\\\\\"\\\\n' * (60 * 1024 * 1024 // 9)
        stream.write('{"prompt_uid":"p","sample_index":0,"raw_message":"{\\"turns\\":[{')
        stream.write('\\"completion_time_ms\\":5,\\"completion_text\\":\\"' + text)
        stream.write('\\"}],\\"agent_metrics\\":{\\"reward_score\\":0.5}}"}\n')
    code = f"""
import resource
from pathlib import Path
from unilab_core.telemetry.rl_trace.reader import TraceReader
from unilab_core.telemetry.rl_trace.document import document
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
reader = TraceReader(Path({str(tmp_path / "t")!r}))
while not reader.poll(): pass
snapshot = reader.snapshot()
view = reader.trajectories.view(0)
assert view.reward == 0.5 and view.turns[0].model_ms == 5.0, view
assert len(view.turns[0].completion) < 100_000
reader.trajectories.pretty_json(0), reader.trajectories.raw_text(0)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(out.stdout) < 100.0
    assert resource.RLIM_INFINITY is not None
