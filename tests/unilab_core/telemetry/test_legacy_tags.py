"""Old tags map to today's with the right factor, and every name is unambiguous."""

from collections import Counter

import pytest

from unilab_core.telemetry.legacy_tags import (
    LEGACY_TAGS,
    RETIRED_TAGS,
    canonical_tag,
    is_legacy,
)
from unilab_core.telemetry.metric_schema import METRICS


@pytest.mark.parametrize(
    ("legacy", "algo", "canonical", "factor"),
    [
        ("perf/steps_per_sec", "sac", "Perf/total_fps", 1.0),
        ("reward/mean_ep100", "ppo", "Train/mean_reward", 1.0),
        ("perf/iter_ms", "sac", "Perf/iteration_time", 0.001),
        ("timing/learner_train_ms", "appo", "Perf/learning_time", 0.001),
        ("timing/collector_rollout_ms", "appo", "Perf/collection_time", 0.001),
        ("train/dp_sync_time", "sac", "Perf/dp_gradient_sync_ms_per_rank", 1000.0),
        ("timing/inference_total_ms", "sac", "Perf/learner_inference_ms", 1.0),
        ("timing/learner_replay_sample_ms", "sac", "Perf/learner_replay_sample_ms", 1.0),
        ("timing/collector_env_step_backend_ms", "sac", "Perf/collector_env_step_backend_ms", 1.0),
        (
            "timing/collector_inference_wait_ms",
            "sac",
            "Perf/collector_learner_action_wait_ms",
            1.0,
        ),
        ("train/actor_loss", "sac", "Loss/actor", 1.0),
        ("train/actor_loss", "appo", "Loss/surrogate", 1.0),
    ],
)
def test_an_old_tag_has_its_heir_and_factor(legacy, algo, canonical, factor):
    assert canonical_tag(legacy, algo) == (canonical, factor)


def test_one_old_name_means_a_background_figure_in_sac_and_a_phase_in_appo():
    old = "timing/learner_incremental_h2d_ms"
    assert canonical_tag(old, "sac") == ("Perf/replay_ingress_h2d_submit_ms", 1.0)
    assert canonical_tag(old, "appo") == ("Perf/learner_replay_stage_ms", 1.0)
    assert canonical_tag(old, "ppo") is None


def test_no_old_name_has_two_heirs_within_one_algorithm():
    names = Counter((entry.legacy, algo) for entry in LEGACY_TAGS for algo in entry.algos)
    assert [name for name, count in names.items() if count > 1] == []


def test_every_heir_is_a_fixed_tag_and_no_old_name_is():
    for entry in LEGACY_TAGS:
        assert entry.canonical in METRICS
        assert entry.legacy not in METRICS


def test_retired_names_are_recognised_but_have_no_heir():
    for tag in ("perf/learner_train_pct", "train/staging_pool_size", "Episode_Reward/upright"):
        assert is_legacy(tag)
        assert canonical_tag(tag, "sac") is None
    assert not is_legacy("Perf/total_fps")
    assert not is_legacy("something/else")
    assert not {e.legacy for e in LEGACY_TAGS} & set(RETIRED_TAGS)
