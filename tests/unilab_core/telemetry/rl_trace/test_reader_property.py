"""Any split of the bytes and any order of the files give the same figures."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from unilab_core.telemetry.rl_trace.damage import Damage, total
from unilab_core.telemetry.rl_trace.flow_blocks import FlowBlocks
from unilab_core.telemetry.rl_trace.flow_figures import flow_figures, transition_figures
from unilab_core.telemetry.rl_trace.flow_shards import ShardParser
from unilab_core.telemetry.rl_trace.flow_store import FlowStore
from unilab_core.telemetry.rl_trace.flow_table import flow_table
from unilab_core.telemetry.rl_trace.flow_waste import FlowSettings
from unilab_core.telemetry.rl_trace.progress_figures import StepRuns, progress_figures
from unilab_core.telemetry.rl_trace.progress_fold import ProgressFold
from unilab_core.telemetry.rl_trace.progress_store import ProgressStore
from unilab_core.telemetry.rl_trace.progress_times import Anchors
from unilab_core.telemetry.rl_trace.stage_aliases import load_aliases
from unilab_core.telemetry.rl_trace.step_figures import consumed_by_step

T0 = 1_787_215_000_000
STAGES = [
    ("ROLLOUT_DISPATCH", "dispatched"),
    ("ROLLOUT_START", "agent_started"),
    ("ROLLOUT_GENERATE", "generation_started"),
    ("ROLLOUT_GENERATE", "generation_finished"),
    ("ROLLOUT_FINISH", "rollout_finished"),
    ("ROLLOUT_REWARD", "reward_score_computed_score=0.5"),
    *(
        ("ROLLOUT_REWARD", f"reward_score_computed{rest}")
        for rest in (
            "",
            "_score",
            "_score=",
            "_score=nan",
            "_score= 7 ",
            "_score=a=2",
            "_x|score=3",
        )
    ),
    ("BUFFER_SAMPLE", "sampled_from_replay_buffer"),
    ("TRAIN_UPDATE", "actor_parameters_updated"),
    ("ENV_RESET", "x, y|z=1"),
    ("SYNC_PARAMS", "weights_synced_global_step=2"),
    ("DATA_PREPROCESS", "uid_generated"),
]


@st.composite
def rows(draw):
    stage, detail = draw(st.sampled_from(STAGES))
    name = draw(st.sampled_from(["u/0", "u/1", "v/0", "v/sample", "*/sample", "bad"]))
    status = draw(st.sampled_from(["RUNNING", "COMPLETE", "FAILED", "complete", "ODD"]))
    job = draw(st.sampled_from(["j", "j", "j", "k"]))
    ms = T0 + draw(st.integers(0, 60)) * 500
    when = draw(st.sampled_from([str(ms), str(ms), str(ms // 1000), f"000{ms // 1000}", "x"]))
    content = f"from=A|to=B|stage={stage}|global_step=1|detail={detail}"
    content = draw(st.sampled_from([content, content, content, f'"{content}"', f'"{content}']))
    cat = draw(st.sampled_from(["sample", "sample", "sample", "sample", "megatron"]))
    row = f"{job},{cat},{name},{status},{when},{content}"
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "", "\n\0\0", "\n  more\n", "\n\n"]))
    return (row + end).encode()


shards = st.lists(st.lists(rows(), max_size=8).map(b"".join), min_size=1, max_size=4)


def folded(files, order, cuts, few_lines=0):
    """State after reading the files in pieces that end at the line breaks nearest to `cuts`."""
    store = FlowStore(load_aliases())
    damages = [Damage() for _ in files]
    parsers = [ShardParser(store.ids, store.batch, damages[i], i + 1) for i in range(len(files))]
    for parser in parsers:
        parser.few_lines = few_lines
    blocks = FlowBlocks(store, block_rows=2, settle_updates=1)
    waiting = {i: 0 for i in order}
    turn = 0
    while waiting:
        for i in list(waiting):
            at, cut = waiting[i], cuts[turn % len(cuts)]
            turn += 1
            end = files[i].rfind(b"\n", at, at + cut) + 1
            if end <= at:
                end = files[i].find(b"\n", at) + 1
            if end <= at:
                del waiting[i]
                continue
            parsers[i].parse(files[i][at:end], at)
            waiting[i] = end
            if cut % 2:
                store.flush()
                blocks.update(cut % max(len(store.ids.jobs), 1))
                if cut % 3:
                    blocks.figures(FlowSettings(now_ms=T0))
    store.flush()
    store.settle()
    figures = {}
    for name, job in store.ids.jobs.items():
        one = flow_figures(store, job, FlowSettings(now_ms=T0 + 40_000))
        figures[name.decode()] = repr(one)
        # Kept contributions of blocks must say what computing everything anew says.
        blocks.update(job)
        assert repr(blocks.figures(FlowSettings(now_ms=T0 + 40_000))) == repr(one)
        table = flow_table(store, job)
        assert blocks.steps() == consumed_by_step(table)
        of_step = transition_figures(table.of_step(1))
        assert repr(transition_figures(blocks.table_of_step(1))) == repr(of_step)
    spans = {name.decode(): store.job_span.get(job) for name, job in store.ids.jobs.items()}
    damage = total([*damages, store.damage]).as_dict()
    return json.dumps([figures, spans, damage], sort_keys=True)


@settings(max_examples=120, deadline=None)
@given(
    shards,
    st.randoms(),
    st.lists(st.integers(1, 400), min_size=1, max_size=6),
    st.sampled_from([0, 2, 64]),
)
def test_sample_flow_depends_on_neither_pieces_nor_order(files, random, cuts, few_lines):
    order = list(range(len(files)))
    whole = folded(files, order, [10**9])
    random.shuffle(order)
    assert folded(files, order, cuts, few_lines) == whole


LINES = [
    "Total training steps: 4",
    "==================== Step 1 ====================",
    "==================== Step 2 ====================",
    *(f"==================== Step {step} ====================" for step in range(3, 9)),
    "Step 1 train started",
    "Step 1 train finished",
    "disagg: start update actor",
    "disagg: end update actor",
    "start eval",
    "end eval",
    "Trainer: try to load global batch@2, chunk[0/0] from replay_queue",
    "Trainer: successfully load global batch@2, chunk[0/0] from replay_queue",
    "Task u/0 is completed, score=nan status=Truncated",
    "noise",
]
logs = st.lists(st.lists(st.sampled_from(LINES), max_size=8), min_size=1, max_size=3)


def progress(files, order, pieces):
    store, damage = ProgressStore(), Damage()
    fold, kept = ProgressFold(store), StepRuns()
    for number in order:
        offset, lines = 0, files[number]
        for start in range(0, len(lines), pieces):
            data = "".join(f"{line}\n" for line in lines[start : start + pieces]).encode()
            store.add(f"2026082{number}-10.log", data, offset, damage)
            offset += len(data)
            fold.update()
            progress_figures(store, fold, Anchors(), now_ms=T0, running=True, kept=kept)
    fold.update()
    figures = progress_figures(store, fold, Anchors(), now_ms=T0, running=True)
    # Steps that were kept on the way must say what making them anew says.
    assert progress_figures(store, fold, Anchors(), now_ms=T0, running=True, kept=kept) == figures
    return repr(figures), damage.as_dict()


@settings(max_examples=80, deadline=None)
@given(logs, st.randoms(), st.integers(1, 5))
def test_progress_depends_on_neither_pieces_nor_order(files, random, pieces):
    order = list(range(len(files)))
    whole = progress(files, order, 10**6)
    random.shuffle(order)
    assert progress(files, order, pieces) == whole
