"""The schema is complete, frozen per version, and refuses what it does not know."""

import hashlib
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unilab_core.telemetry import metric_schema as schema
from unilab_core.telemetry.metric_spec import ALGOS, OWNERS

# One file per schema version with unit and meaning of every tag and family, never edited but to
# add a tag. Whoever changes or removes one raises METRIC_SCHEMA_VERSION and adds the next file.
FROZEN = Path(__file__).parent / "frozen"
DIGESTS = {1: "2076ac201c92ec2c0ebfe6beca9c378cee02b1c5d13a0dfedba1ded5178e6a9c"}
"""sha256 of the files of released versions, so that an edit of the past is seen as one."""

SAC_TAGS_ON_CPU = {
    "Train/iteration",
    "Train/mean_reward",
    "Train/mean_episode_length",
    "Episode/timeout_rate",
    "Loss/entropy",
    "Loss/actor",
    "Loss/critic",
    "Loss/temperature",
    "Policy/temperature",
    "Train/actor_gradient_norm",
    "Train/critic_gradient_norm",
    "Train/target_q_max",
    "Train/target_q_min",
    "Train/replay_ingress_depth",
    "Train/replay_ingress_occupancy",
    "Train/replay_ingress_high_water",
    "Train/replay_ingress_backpressure_wait_ms",
    "Train/replay_ingress_dropped_batches",
    "Perf/total_fps",
    "Perf/iteration_time",
    "Perf/learning_time",
    "Perf/learner_collector_wait_ms",
    "Perf/learner_inference_ms",
    "Perf/learner_collector_release_ms",
    "Perf/learner_replay_batch_wait_ms",
    "Perf/learner_replay_sample_ms",
    "Perf/learner_inference_h2d_ms",
    "Perf/learner_inference_forward_ms",
    "Perf/learner_inference_d2h_ms",
    "Perf/collector_inference_request_ms",
    "Perf/collector_learner_action_wait_ms",
    "Perf/collector_env_step_ms",
    "Perf/collector_env_step_action_validate_ms",
    "Perf/collector_env_step_apply_action_ms",
    "Perf/collector_env_step_action_backend_ms",
    "Perf/collector_env_step_backend_ms",
    "Perf/collector_env_step_update_state_ms",
    "Perf/collector_env_step_reset_done_ms",
    "Perf/collector_transition_extract_ms",
    "Perf/collector_replay_write_ms",
    "Perf/collector_metrics_publish_ms",
    "Perf/collector_inference_queue_depth",
    "Perf/collector_inference_action_backlog",
    "Perf/collector_inference_max_action_backlog",
    "Perf/collector_inference_in_flight",
    "Perf/collector_inference_max_in_flight",
    "Perf/collector_inference_publication_lag",
    "Perf/collector_inference_max_publication_lag",
}

UNIT_BY_SUFFIX = {
    "_ms": "ms",
    "_ms_per_rank": "ms",
    "_calls_per_rank": "calls",
    "_time": "s",
    "_fps": "env steps/s",
    "_fraction": "ratio",
    "_norm": "norm",
    "_slots": "slots",
    "_batches": "batches",
    "_length": "env steps/episode",
}


def all_declared():
    return [*schema.METRICS.values(), *schema.FAMILIES]


def frozen_tags():
    path = FROZEN / f"metric_schema_{schema.METRIC_SCHEMA_VERSION}.json"
    assert path.is_file(), f"a new version needs its own file: {path.name}"
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["metric_schema_version"] == schema.METRIC_SCHEMA_VERSION
    return record["tags"]


def broken_promises(declared, frozen):
    """Tags whose name, unit or meaning is not what the frozen version says."""
    now = {m.tag: {"unit": m.unit, "meaning": m.doc} for m in declared}
    return sorted(tag for tag, promise in frozen.items() if now.get(tag) != promise)


def test_no_name_unit_or_meaning_changes_within_a_version():
    assert broken_promises(all_declared(), frozen_tags()) == [], "raise METRIC_SCHEMA_VERSION"


def test_an_added_tag_is_frozen_with_its_version():
    missing = {m.tag for m in all_declared()} - frozen_tags().keys()
    assert missing == set(), "add them to the file of the current version"


def test_the_frozen_files_themselves_are_not_rewritten():
    files = {int(path.stem.rpartition("_")[2]): path for path in FROZEN.glob("*.json")}
    assert files.keys() == DIGESTS.keys() == set(range(1, schema.METRIC_SCHEMA_VERSION + 1))
    for version, path in files.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == DIGESTS[version], path.name


@pytest.mark.parametrize("change", ["name", "unit", "meaning", "removed"])
def test_the_guard_sees_every_kind_of_change(change):
    first, *others = all_declared()
    changed = {
        "name": [replace(first, tag=f"{first.tag}_2")],
        "unit": [replace(first, unit="furlongs")],
        "meaning": [replace(first, doc="Something else.")],
        "removed": [],
    }[change]
    assert broken_promises([*changed, *others], frozen_tags()) == [first.tag]


def test_there_are_68_fixed_tags_of_which_the_logger_owns_28():
    assert len(schema.METRICS) == 68
    assert len(schema.LOGGER_OWNED) == 28


def test_the_logger_owns_all_collector_tags_and_four_of_the_loop():
    from_collector = {t for t, m in schema.METRICS.items() if m.owner == "collector"}
    of_the_loop = {
        "Train/iteration",
        "Perf/total_fps",
        "Perf/iteration_time",
        "Perf/learning_time",
    }
    assert from_collector | of_the_loop == schema.LOGGER_OWNED


def test_every_unit_follows_from_the_suffix_of_its_name():
    for tag, metric in schema.METRICS.items():
        suffixes = [s for s in UNIT_BY_SUFFIX if tag.endswith(s)]
        if suffixes:
            assert metric.unit == UNIT_BY_SUFFIX[max(suffixes, key=len)], tag
        if metric.unit in ("ms", "s"):
            assert suffixes, f"{tag} is a duration without a unit in its name"


def test_every_declaration_is_filled_in():
    for metric in all_declared():
        assert metric.owner in OWNERS
        assert set(metric.algos) <= set(ALGOS)
        assert metric.algos
        assert metric.doc.endswith(".")
        assert metric.label
        if metric.parent is not None:
            assert schema.METRICS[metric.parent].part == "phase"


def test_a_sac_run_on_a_cpu_has_exactly_the_documented_tags():
    assert schema.expected_tags("sac") == SAC_TAGS_ON_CPU
    assert schema.allowed_tags("sac") == SAC_TAGS_ON_CPU


def test_device_and_rank_tags_exist_only_where_they_mean_something():
    submit = "Perf/replay_ingress_h2d_submit_ms"
    assert schema.allowed_tags("sac", accelerator=True) - SAC_TAGS_ON_CPU == {submit}
    assert schema.allowed_tags("sac", ranks=2) - SAC_TAGS_ON_CPU == {
        "Perf/dp_gradient_sync_ms_per_rank",
        "Perf/dp_gradient_sync_calls_per_rank",
    }


def test_a_reward_scale_may_appear_in_a_flashsac_run_but_need_not():
    scale = "Train/reward_scale_std"
    assert scale in schema.allowed_tags("flashsac")
    assert scale not in schema.expected_tags("flashsac")


def test_ppo_has_no_tag_of_the_other_time_lines():
    assert schema.expected_tags("ppo") == {
        "Train/mean_reward",
        "Train/mean_episode_length",
        "Loss/surrogate",
        "Loss/value",
        "Loss/entropy",
        "Loss/learning_rate",
        "Policy/mean_std",
        "Perf/total_fps",
        "Perf/iteration_time",
        "Perf/collection_time",
        "Perf/learning_time",
    }


def test_learner_phases_come_in_the_order_of_the_time_line():
    assert [m.label for m in schema.learner_phases("sac")] == [
        "Collector Wait",
        "Inference",
        "Collector Release",
        "Replay Batch Wait",
        "Replay Sample",
        "Learning",
    ]
    assert [m.label for m in schema.learner_phases("appo")] == [
        "Collector Wait",
        "Replay Stage",
        "Replay Sample",
        "Learning",
        "Weight Publish",
    ]


def test_only_the_sac_family_has_a_collector_cycle():
    assert [m.tag.removeprefix("Perf/collector_") for m in schema.collector_phases("sac")] == [
        "inference_request_ms",
        "learner_action_wait_ms",
        "env_step_ms",
        "transition_extract_ms",
        "replay_write_ms",
        "metrics_publish_ms",
    ]
    assert schema.collector_phases("flashsac") == schema.collector_phases("sac")
    assert schema.collector_phases("appo") == ()
    assert schema.collector_phases("ppo") == ()


def test_env_step_has_six_details():
    details = schema.details_of("Perf/collector_env_step_ms")
    assert [m.label for m in details] == [
        "Action Validate",
        "Apply Action",
        "Action+Backend",
        "Backend Step",
        "Update State",
        "Reset Done",
    ]


def test_details_of_the_inference_are_written_to_files_only():
    for metric in schema.details_of("Perf/learner_inference_ms"):
        assert metric.backends == ("tensorboard", "wandb")


def test_seconds_and_milliseconds_meet_in_milliseconds():
    assert schema.in_ms("Perf/learning_time", 0.0125) == 12.5
    assert schema.in_ms("Perf/learner_inference_ms", 12.5) == 12.5


@pytest.mark.parametrize(
    "tag",
    [
        "Loss/unheard_of",
        "loss/critic",
        "reward/mean",
        "reward/mean_ep100",
        "reward/",
        "reward/reward/upright",
        "reward/two words ",
        "reward/line\nbreak",
        "reward/" + "x" * 65,
        "Episode_Termination/",
        "Episode_Reward/upright",
        "perf/iter_ms",
        "",
    ],
)
def test_an_unknown_tag_or_a_bad_term_is_an_error(tag):
    with pytest.raises(ValueError, match=r"metric|term"):
        schema.spec(tag)
    with pytest.raises(ValueError, match=r"metric|term"):
        schema.validate_record("sac", {tag: 1.0})


@pytest.mark.parametrize("algo", ALGOS)
def test_reward_and_termination_terms_belong_to_all_algorithms(algo):
    schema.validate_record(algo, {"reward/upright": 0.5, "Episode_Termination/fell": 2.0})


def test_auxiliary_losses_belong_to_flashsac_alone():
    schema.validate_record("flashsac", {"Loss/aux_symmetry": 0.5})
    with pytest.raises(ValueError, match="sac run"):
        schema.validate_record("sac", {"Loss/aux_symmetry": 0.5})


def test_a_tag_of_another_algorithm_is_an_error():
    with pytest.raises(ValueError, match=r"Loss/surrogate.*ppo, appo"):
        schema.validate_record("sac", {"Loss/surrogate": 0.5})


def test_more_terms_than_the_limit_are_an_error():
    terms = {f"reward/term_{i}": 0.0 for i in range(schema.MAX_FAMILY_TERMS)}
    schema.validate_record("sac", terms)
    with pytest.raises(ValueError, match="more than 256 terms"):
        schema.validate_record("sac", {**terms, "reward/one_more": 0.0})


@pytest.mark.parametrize("value", [True, np.True_, "1.0", None, [1.0], np.zeros(1)])
def test_a_value_that_is_no_number_is_an_error(value):
    with pytest.raises(ValueError, match="expected a number"):
        schema.validate_record("sac", {"Loss/critic": value})


@pytest.mark.parametrize("value", [1, -2.5, np.float32(0.5), np.int64(3), math.nan, math.inf])
def test_every_number_passes_finite_or_not(value):
    schema.validate_record("sac", {"Loss/critic": value})


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True])
def test_an_inference_gauge_is_finite_and_not_negative(value):
    with pytest.raises(ValueError, match="queue_depth"):
        schema.checked_gauge("Perf/collector_inference_queue_depth", value)
    assert schema.checked_gauge("Perf/collector_inference_queue_depth", 2) == 2.0


def test_an_unknown_algorithm_is_an_error():
    with pytest.raises(ValueError, match="'dqn' is not one of ppo, appo, sac, flashsac"):
        schema.allowed_tags("dqn")


def test_telemetry_loads_neither_torch_nor_tensorboard():
    modules = "training_logger, tensorboard_sink, window, plain, diagnosis, legacy_tags"
    code = (
        f"import sys; from unilab_core.telemetry import {modules};"
        "sys.exit(bool({'torch', 'tensorboardX', 'mujoco', 'textual', 'hydra'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
