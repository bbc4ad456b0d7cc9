"""Figures are read back in the naming they were written in, or not at all."""

import json
import math

import pytest

from unilab_core.telemetry.event_file import EventFile, ScalarEvent
from unilab_core.telemetry.legacy_tags import LEGACY_TAGS, RETIRED_TAGS, canonical_tag
from unilab_core.telemetry.metric_extraction import ROWS, ExtractionError, extract
from unilab_core.tools.extract_metrics import main

ROW_NAMES = [
    "iter_ms", "steps_per_sec", "collector_active_steps_per_sec", "collector_cycle_ms",
    "collector_learner_action_wait_ms", "collector_replay_write_ms", "learner_collector_wait_ms",
    "learner_inference_ms", "learner_replay_batch_wait_ms", "learner_replay_sample_ms",
    "replay_ingress_h2d_submit_ms", "learner_collector_release_ms", "learner_train_ms",
]  # fmt: skip

# The four namings in circulation before the schema, oldest first. Together they use every name of
# the legacy table (a test below holds them to it).
OLDEST = {
    "timing/learner_wait_ms", "timing/collector_env_step_total_ms", "timing/learner_weight_sync_ms",
    "timing/learner_sync_coordination_ms", "timing/collector_replay_ms",
    "timing/collector_weight_sync_ms", "timing/collector_weight_apply_ms",
    "timing/collector_action_select_ms", "timing/collector_policy_infer_ms",
    "timing/collector_sync_idle_ms", "timing/learner_incremental_h2d_ms", "iteration",
    "reward/mean", "loss/policy_loss", "loss/value_loss", "policy_entropy", "policy_kl",
    "perf/train_time_ms", "perf/collect_time_ms", "Episode_Reward/upright",
}  # fmt: skip
FIRST_INFERENCE = {
    "timing/inference_total_ms", "timing/inference_h2d_ms", "timing/inference_forward_ms",
    "timing/inference_d2h_ms", "timing/collector_inference_wait_ms", "train/surrogate_loss",
    "train/value_loss", "actor_entropy", "train/qf_loss", "train/alpha_loss", "train/alpha",
    "behavior_to_current_kl", "ppo/approx_kl", "grad/global_norm", "optim/learning_rate",
    "policy/mean_std", "train/action_std", "appo/updates_executed", "train/staging_pool_size",
    "perf/effective_samples_per_sec", "timing/learner_train_ms", "timing/collector_rollout_ms",
}  # fmt: skip
INTERMEDIATE = {
    "PPO/approx_kl", "reward/mean_ep100", "episode/length", "episode/timeout_rate",
    "train/actor_loss", "train/critic_loss", "train/entropy", "train/temperature_loss",
    "train/temperature", "train/actor_grad_norm", "train/critic_grad_norm", "train/kl",
    "vtrace/rho_clip_fraction", "vtrace/rho_raw_p99", "train/available_on_arrive",
    "train/rollouts_read", "perf/learner_samples_per_sec", "perf/learner_pipeline_ms",
    "perf/learner_train_pct",
}  # fmt: skip
LAST = {
    entry.legacy
    for entry in LEGACY_TAGS
    if entry.legacy == f"timing/{entry.canonical.removeprefix('Perf/')}"
} | {
    "timing/replay_ingress_h2d_submit_ms", "timing/learner_train_ms", "perf/steps_per_sec",
    "perf/iter_ms", "perf/collector_active_steps_per_sec", "perf/collector_cycle_ms",
    "timing/learner_other_ms", "train/dp_sync_time", "train/dp_gradient_sync_calls",
}  # fmt: skip
ERAS = {
    "oldest": OLDEST, "first inference": FIRST_INFERENCE, "intermediate": INTERMEDIATE,
    "last": LAST,
}  # fmt: skip

CYCLE_MS = {
    "Perf/collector_inference_request_ms": 1.0, "Perf/collector_learner_action_wait_ms": 5.0,
    "Perf/collector_env_step_ms": 6.0, "Perf/collector_transition_extract_ms": 0.5,
    "Perf/collector_replay_write_ms": 1.0, "Perf/collector_metrics_publish_ms": 0.25,
}  # fmt: skip


def write_events(folder, values, steps=3):
    """`steps` points per tag, growing by one each: the last is value + steps - 1."""
    folder.mkdir(parents=True, exist_ok=True)
    file = EventFile(folder)
    for step in range(steps):
        scalars = {tag: value + step for tag, value in values.items()}
        file.write(ScalarEvent(step=64 * (step + 1), wall_time_s=1.0 + step, scalars=scalars))
    file.close()


def run_dir_of(tmp_path, values, summary=None, algo="sac", steps=3):
    run_dir = tmp_path / "logs" / {"ppo": "rsl_rl_ppo"}.get(algo, algo) / "task" / "run"
    write_events(run_dir, values, steps)
    config = {"algo": algo, "config": {"algo": {"num_envs": 16}}}
    (run_dir / "run_config.json").write_text(json.dumps(config))
    if summary is not None:
        (run_dir / "run_summary.json").write_text(json.dumps(summary))
    return run_dir


def test_the_rows_are_those_of_the_public_tool_in_its_order():
    assert [row.name for row in ROWS] == ROW_NAMES


def test_a_row_is_the_mean_of_the_last_points_in_its_own_unit(tmp_path):
    values = {"Perf/iteration_time": 0.5, "Perf/total_fps": 1000.0, "Perf/learning_time": 2.0}
    run_dir = run_dir_of(tmp_path, values, {"metric_schema_version": 1}, steps=30)
    found = extract(run_dir, last=4)
    # Steps 26 to 29 of 30: 0.5 + 27.5 seconds are 28000 ms.
    assert found.rows["iter_ms"] == pytest.approx(28000.0)
    assert found.rows["steps_per_sec"] == pytest.approx(1027.5)
    assert found.rows["learner_train_ms"] == pytest.approx(29500.0)
    assert found.points["iter_ms"] == 4
    assert found.rows["learner_inference_ms"] is None
    assert extract(run_dir).points["iter_ms"] == 20
    assert extract(run_dir, last=500).points["iter_ms"] == 30


def test_what_is_no_tag_any_more_follows_from_the_phases(tmp_path):
    run_dir = run_dir_of(tmp_path, CYCLE_MS, {"metric_schema_version": 1}, steps=1)
    found = extract(run_dir)
    assert found.rows["collector_cycle_ms"] == pytest.approx(13.75)
    assert found.rows["collector_active_steps_per_sec"] == pytest.approx(16 / 8e-3)
    incomplete = {tag: ms for tag, ms in CYCLE_MS.items() if "publish" not in tag}
    other = run_dir_of(tmp_path / "b", incomplete, {"metric_schema_version": 1}, steps=1)
    assert extract(other).rows["collector_cycle_ms"] is None


@pytest.mark.parametrize("version", [None, 0, 2, "1", 1.0, True])
def test_only_schema_one_is_read(tmp_path, version):
    run_dir = run_dir_of(tmp_path, {"Perf/total_fps": 1.0}, {"metric_schema_version": version})
    with pytest.raises(ExtractionError, match="metric_schema_version"):
        extract(run_dir)
    with pytest.raises(ExtractionError, match="metric_schema_version"):
        extract(run_dir, legacy=True)


@pytest.mark.parametrize("summary", [None, {}, {"status": "completed"}])
def test_a_run_without_a_stamp_is_refused(tmp_path, summary):
    run_dir = run_dir_of(tmp_path, {"Perf/total_fps": 1.0}, summary)
    with pytest.raises(ExtractionError, match=r"run_summary|metric_schema_version"):
        extract(run_dir)


def test_a_damaged_summary_is_no_stamp(tmp_path):
    run_dir = run_dir_of(tmp_path, {"Perf/total_fps": 1.0})
    (run_dir / "run_summary.json").write_text('{"metric_schema_version": 1')
    for legacy in (False, True):
        with pytest.raises(ExtractionError, match=r"run_summary\.json: damaged"):
            extract(run_dir, legacy=legacy)


@pytest.mark.parametrize("old", ["perf/iter_ms", "perf/learner_train_pct", "iteration"])
@pytest.mark.parametrize("stamp", [True, False])
def test_mixed_namings_are_refused_in_both_modes(tmp_path, old, stamp):
    values = {"Perf/total_fps": 1.0, old: 2.0}
    run_dir = run_dir_of(tmp_path, values, {"metric_schema_version": 1} if stamp else None)
    with pytest.raises(ExtractionError):
        extract(run_dir)
    with pytest.raises(ExtractionError):
        extract(run_dir, legacy=True)


def test_the_eras_use_every_name_of_the_legacy_table():
    used = set().union(*ERAS.values())
    assert {entry.legacy for entry in LEGACY_TAGS} <= used
    for pattern in RETIRED_TAGS:
        stem = pattern.split("*")[0]
        assert any(tag.startswith(stem) for tag in used), pattern


@pytest.mark.parametrize("era", ERAS)
def test_each_older_naming_is_read_on_request_and_refused_otherwise(tmp_path, era, capsys):
    values = {tag: float(10 + i) for i, tag in enumerate(sorted(ERAS[era]))}
    run_dir = run_dir_of(tmp_path, values)
    with pytest.raises(ExtractionError, match="legacy-unversioned"):
        extract(run_dir)
    assert main([str(run_dir)]) == 2
    assert main([str(run_dir), "--legacy-unversioned", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    read = {name: value for name, value in rows.items() if value is not None}
    assert read.keys() == rows_of(ERAS[era])
    for row in ROWS:
        old = next((tag for tag in row.legacy if tag in values), None)
        if row.name in read and row.tag is not None:
            _, factor = canonical_tag(old, "sac")
            # The mean of value, value + 1, value + 2.
            assert read[row.name] == pytest.approx((values[old] + 1.0) * factor * row.scale)


def rows_of(tags):
    return {row.name for row in ROWS if any(tag in tags for tag in row.legacy)}


def test_every_old_name_of_a_row_is_an_old_name_of_its_tag():
    for row in ROWS:
        for tag in row.legacy:
            if row.tag is not None:
                assert canonical_tag(tag, "sac")[0] == row.tag


def test_the_newest_of_several_old_names_wins(tmp_path):
    both = {"timing/learner_wait_ms": 100.0, "timing/learner_collector_wait_ms": 1.0}
    found = extract(run_dir_of(tmp_path, both), legacy=True)
    assert found.sources["learner_collector_wait_ms"] == "timing/learner_collector_wait_ms"
    assert found.rows["learner_collector_wait_ms"] == pytest.approx(2.0)


def test_milliseconds_of_then_are_milliseconds_of_now(tmp_path):
    found = extract(run_dir_of(tmp_path, {"perf/iter_ms": 40.0}, steps=1), legacy=True)
    assert found.rows["iter_ms"] == pytest.approx(40.0)


def test_one_old_name_that_meant_two_things_needs_the_algorithm(tmp_path):
    tag = {"timing/learner_incremental_h2d_ms": 3.0}
    sac = extract(run_dir_of(tmp_path / "a", tag, steps=1), legacy=True)
    assert sac.rows["replay_ingress_h2d_submit_ms"] == pytest.approx(3.0)
    appo = extract(run_dir_of(tmp_path / "b", tag, algo="appo", steps=1), legacy=True)
    assert appo.rows["replay_ingress_h2d_submit_ms"] is None
    nameless = tmp_path / "c"
    write_events(nameless, tag)
    with pytest.raises(ExtractionError, match="names the algorithm"):
        extract(nameless, legacy=True)


def test_the_path_names_the_algorithm_of_a_run_without_a_configuration(tmp_path):
    run_dir = tmp_path / "logs" / "flash_sac" / "task" / "run"
    write_events(run_dir, {"timing/learner_incremental_h2d_ms": 3.0}, steps=1)
    assert extract(run_dir, legacy=True).algo == "flashsac"


def test_a_tag_that_nobody_ever_wrote_is_no_legacy_run(tmp_path):
    run_dir = run_dir_of(tmp_path, {"perf/iter_ms": 1.0, "my/own": 2.0})
    with pytest.raises(ExtractionError, match="my/own"):
        extract(run_dir, legacy=True)


def test_reward_terms_kept_their_names_and_prove_nothing(tmp_path):
    run_dir = run_dir_of(tmp_path, {"perf/iter_ms": 1.0, "reward/upright": 2.0})
    assert extract(run_dir, legacy=True).rows["iter_ms"] == pytest.approx(2.0)
    only = run_dir_of(tmp_path / "b", {"reward/upright": 2.0})
    with pytest.raises(ExtractionError, match="not a single tag"):
        extract(only, legacy=True)


def test_a_tag_that_a_newer_version_added_does_not_disturb(tmp_path):
    values = {"Perf/total_fps": 5.0, "Perf/something_new_ms": 1.0}
    run_dir = run_dir_of(tmp_path, values, {"metric_schema_version": 1})
    assert extract(run_dir).rows["steps_per_sec"] == pytest.approx(6.0)


def test_of_nested_folders_the_deepest_is_read(tmp_path):
    run_dir = run_dir_of(tmp_path, {"Perf/total_fps": 1.0}, {"metric_schema_version": 1})
    write_events(run_dir / "tb" / "inner", {"Perf/total_fps": 100.0}, steps=1)
    found = extract(run_dir)
    assert found.rows["steps_per_sec"] == pytest.approx(100.0)
    assert found.event_dir.endswith("tb/inner")


def test_a_point_that_is_not_finite_is_told_and_never_averaged_away(tmp_path, capsys):
    run_dir = run_dir_of(tmp_path, {"Perf/total_fps": math.nan}, {"metric_schema_version": 1})
    assert math.isnan(extract(run_dir).rows["steps_per_sec"])
    assert main([str(run_dir), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]["steps_per_sec"] is None


@pytest.mark.parametrize("what", ["missing", "empty", "zero"])
def test_bad_input_is_one_line(tmp_path, what, capsys):
    folder = tmp_path / "x"
    if what != "missing":
        folder.mkdir()
    arguments = [str(folder)]
    if what == "zero":
        write_events(folder, {"Perf/total_fps": 1.0})
        arguments += ["--last", "0"]
    assert main(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_table_shows_nan_for_what_the_run_does_not_have(tmp_path, capsys):
    run_dir = run_dir_of(tmp_path, {"Perf/total_fps": 5.0}, {"metric_schema_version": 1}, steps=1)
    assert main([str(run_dir)]) == 0
    lines = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]}
    assert list(lines) == ROW_NAMES
    assert lines["steps_per_sec"] == "5.0000"
    assert lines["iter_ms"] == "nan"
