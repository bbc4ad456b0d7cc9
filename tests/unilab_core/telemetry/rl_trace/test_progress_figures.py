import pytest

from unilab_core.telemetry.rl_trace.progress_lines import Kind, parse_progress_line

T0 = 1_787_215_000_000


def header(step):
    return f"{'=' * 20} Step {step} {'=' * 20}"


def stamped(trace, lines, name="20260820-16"):
    """Progress lines with exact times beside the root; `lines` are (seconds, text)."""
    offset, times = 0, []
    for seconds, line in lines:
        times.append(f"{name}.log,{offset},{T0 + int(seconds * 1000)}\n")
        offset += len(line) + 1
    trace.write("progress", **{name: "".join(f"{line}\n" for _, line in lines)})
    with open(trace.root.parent / "progress.tsidx", "a") as stream:
        stream.writelines(times)
    return trace


def stages(figures):
    return {one["name"]: one for one in figures["progress"]["stages"]}


def test_the_progress_set(trace):
    lines = [(0, "Total training steps: 10")]
    lines += [(1, header(1)), (121, header(2)), (231, header(3)), (361, header(4))]
    snapshot = stamped(trace, lines).read(ended=None).snapshot(T0 + 400_000)
    progress = snapshot.progress
    assert (progress.current_step, progress.total_steps, progress.pct) == (4, 10, 40.0)
    assert (progress.pace_s, progress.eta_s, progress.mean_step_s) == (130.0, 780.0, 120.0)
    assert (progress.completed_steps, progress.eta_refined_s) == (3, 801.0)


def test_elapsed_of_a_running_session_goes_on_to_now(trace):
    lines = [(0, "Total training steps: 10"), (1, header(1)), (361, header(2))]
    stamped(trace, lines)
    row = f"j,sample,u/0,RUNNING,{T0 + 399_000},stage=ROLLOUT_START|detail=x\n"
    trace.write(a_pid1=row)
    assert trace.figures(now_ms=T0 + 400_000)["progress"]["elapsed_s"] == 400.0
    ended = trace.figures(now_ms=T0 + 400_000, ended=True)["progress"]
    assert ended["elapsed_s"] == 399.0


def test_the_documents_own_example(trace):
    text = """\
Total training steps: 100
==================== Step 1 ====================
Step 1 rollout started
Trainer: try to load global batch@1, chunk[0/0] from replay_queue
Trainer: successfully load global batch@1, chunk[0/0] from replay_queue
Step 1 rollout finished
Task prompt-001/0 is completed, score=1.0 status=Finished
disagg: start compute reward
disagg: end compute reward
disagg: start update actor
disagg: end update actor
disagg: start sync params
disagg: end sync params
"""
    figures = trace.write("progress", **{"20260820-16": text}).figures()
    progress = figures["progress"]
    assert (progress["mode"], progress["current_step"], progress["total_steps"]) == (
        "disagg", 1, 100
    )  # fmt: skip
    assert (progress["mean_step_s"], progress["eta_s"]) == (None, None)
    assert figures["health"]["noise"] == 0
    assert {name: one["state"] for name, one in stages(figures).items()} == {
        "compute reward": "done",
        "compute log prob": "skipped",
        "compute ref log prob": "skipped",
        "compute values": "skipped",
        "compute adv": "skipped",
        "update actor": "done",
        "save checkpoint": "skipped",
        "eval": "skipped",
        "record metrics": "skipped",
        "sync params": "done",
    }
    assert stages(figures)["update actor"]["duration_s"] is None


def test_a_stage_may_cross_the_hour(trace):
    trace.write(
        "progress",
        **{
            "20260820-16": f"{header(1)}\ndisagg: start update actor\n",
            "20260820-17": "disagg: end update actor\n",
        },
    )
    found = stages(trace.figures())["update actor"]
    assert (found["state"], found["occurrences"]) == ("done", 1)


def test_a_stage_without_an_end_is_aborted_by_the_next_header(trace):
    lines = [(0, header(1)), (1, "start update actor"), (9, header(2))]
    figures = stamped(trace, lines).figures()
    found = stages(figures)["update actor"]
    assert (found["state"], found["duration_s"]) == ("aborted", None)
    assert figures["progress"]["stage_step"] == 1


def test_a_stage_that_ends_after_the_next_header_is_done(trace):
    lines = [(0, header(1)), (1, "start update actor"), (9, header(2)), (11, "end update actor")]
    found = stages(stamped(trace, lines).figures())["update actor"]
    assert (found["state"], found["duration_s"], found["occurrences"]) == ("done", 10.0, 1)


def test_an_end_without_a_start_is_done_without_duration(trace):
    found = stages(stamped(trace, [(0, header(1)), (1, "end update actor")]).figures())
    assert (found["update actor"]["state"], found["update actor"]["duration_s"]) == ("done", None)


def test_a_repeated_header_is_no_new_step(trace):
    lines = [(0, header(1)), (5, header(1)), (9, header(2))]
    figures = stamped(trace, lines).figures()
    assert figures["progress"]["mean_step_s"] == 9.0
    assert figures["progress"]["session"] == 1


def test_tasks_keep_their_last_slash_and_unknown_status(trace):
    line = "Task a b/c/12 is completed, score=nan status=Truncated"
    parsed = parse_progress_line(line.encode())
    assert parsed is not None
    assert (parsed.kind, parsed.text, parsed.number) == (Kind.TASK, "a b/c", 12)
    assert (parsed.value, parsed.status) == (None, "Truncated")
    figures = trace.write("progress", **{"20260820-16": line + "\n"}).figures()
    assert figures["progress"]["trajectory_statuses"] == {"Truncated": 1}
    assert figures["health"]["nan"] == 1


def test_colours_and_foreign_lines_are_no_error(trace):
    text = (
        "\x1b[32mTotal training steps: 7\x1b[0m\n"
        "  3%|###   | 1/30 [00:01<00:30,  1.01it/s]\r 6%|##\rStep 1 train started\n"
        "2026-01-01 INFO something\n\n"
    )
    figures = trace.write("progress", **{"20260820-16": text}).figures()
    assert figures["progress"]["total_steps"] == 7
    assert figures["health"]["noise"] == 1


def test_content_appended_to_an_older_file_is_read(trace):
    trace.write("progress", **{"20260820-16": f"{header(1)}\n", "20260820-17": f"{header(3)}\n"})
    reader = trace.read()
    trace.append("progress", "20260820-16", f"{header(2)}\n")
    reader.poll()
    progress = reader.snapshot().progress
    assert (progress.current_step, progress.session) == (3, 1)
    assert [run.step for run in progress.history] == [1, 2, 3]


def test_three_mini_batches_are_one_stage_of_three_segments(trace):
    lines = [(0, header(1))]
    for start, length in ((1, 10), (20, 12), (40, 11)):
        lines += [
            (start, "disagg: start update actor"),
            (start + length, "disagg: end update actor"),
        ]
    figures = stamped(trace, lines).figures()
    found = stages(figures)["update actor"]
    assert (found["duration_s"], found["occurrences"]) == (33.0, 3)
    assert found["time_source"] == "exact"


def test_an_unknown_stage_comes_after_the_known_ones(trace):
    lines = [(0, header(1)), (1, "start update critic"), (2, "end update critic")]
    names = list(stages(stamped(trace, lines).figures()))
    assert names[-1] == "update critic"
    assert "generation" not in names


def test_stage_lines_belong_to_the_loaded_batch(trace):
    load = "Trainer: successfully load global batch@1, chunk[0/0] from replay_queue"
    lines = [(0, header(1)), (1, load), (2, header(2)), (3, "disagg: start update actor")]
    figures = stamped(trace, lines).figures(now_ms=T0 + 4000)
    history = {
        one["step"]: [s["name"] for s in one["stages"]] for one in figures["progress"]["history"]
    }
    assert history == {1: ["update actor"], 2: []}


def test_a_running_stage_shows_its_time_so_far(trace):
    lines = [(0, header(1)), (1, "start update actor")]
    stamped(trace, lines)
    found = stages(trace.figures(now_ms=int(1e3) * 2 + T0, ended=False))
    assert found["update actor"]["state"] in ("running", "aborted")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("=" * 20 + " Step 3 (Epoch 1, consumed batches: 12) " + "=" * 20, Kind.HEADER),
        ("Trainer: try to load global batch@4, chunk[1/3] from replay_queue", Kind.LOAD_TRY),
        ("Generation throughput: 812.5 tokens/s", Kind.THROUGHPUT),
        ("end save checkpoint", Kind.STAGE_END),
        ("Step 12 rollout finished", Kind.ROLLOUT_FINISHED),
    ],
)
def test_line_forms(line, kind):
    parsed = parse_progress_line(line.encode())
    assert parsed is not None
    assert parsed.kind is kind


def test_header_extras_are_read():
    parsed = parse_progress_line(f"{'=' * 20} Step 3 (Epoch 1, batch 12) {'=' * 20}".encode())
    assert parsed is not None
    assert (parsed.number, parsed.epoch, parsed.batch) == (3, 1, 12)


def test_a_restart_is_a_new_session(trace):
    lines = [(0, "Total training steps: 9"), (1, header(1)), (11, header(2))]
    lines += [(100, "Total training steps: 9"), (101, header(2)), (121, header(3))]
    progress = stamped(trace, lines).figures()["progress"]
    assert (progress["session"], progress["mean_step_s"]) == (2, 20.0)
    assert progress["elapsed_s"] == 11.0 + 21.0


def test_anchors_from_the_sample_flow_are_used_and_named(trace):
    rows = [
        f"j,sample,u/sample,RUNNING,{T0 + 30_000 * step},stage=DATA_PREPROCESS|global_step={step}"
        "|detail=uid_generated\n"
        for step in (1, 2, 3)
    ]
    trace.write(a_pid1="".join(rows))
    trace.write("progress", **{"20260820-16": "".join(f"{header(step)}\n" for step in (1, 2, 3))})
    progress = trace.figures()["progress"]
    assert progress["mean_step_s"] == 30.0
    assert {one["time_source"] for one in progress["history"]} == {"anchor"}


def test_windows_give_the_times_of_the_step_table(trace):
    lines = [
        (0, header(1)),
        (0, "Step 1 rollout started"),
        (8, "Step 1 rollout finished"),
        (9, "Step 1 train started"),
        (19, "Step 1 train finished"),
        (20, header(2)),
        (10, "Step 2 rollout started"),
        (21, "Step 2 rollout finished"),
        (23, "Step 2 train started"),
        (30, "Step 2 train finished"),
    ]
    steps = stamped(trace, lines).figures()["flow"]["steps"]
    keys = ("rollout_sec", "gap_sec", "train_sec", "idle_sec")
    assert [[one[key] for key in keys] for one in steps] == [
        [8.0, 1.0, 10.0, None],
        [11.0, 2.0, 7.0, 4.0],
    ]
