"""Tags of runs older than metric schema 1: read only, never written.

`canonical_tag(legacy, algo)` gives the tag of today and the factor that turns the old value into
its unit. Old event files are never rewritten; the extraction tool reads them through this table.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from unilab_core.telemetry.metric_schema import METRICS

_ON_POLICY = ("ppo", "appo")
_SAC_FAMILY = ("sac", "flashsac")
_EVERY = _ON_POLICY + _SAC_FAMILY

MS_TO_S = 1e-3
S_TO_MS = 1e3


@dataclass(kw_only=True, slots=True, frozen=True)
class LegacyTag:
    """An old name, the new one, and old value x factor = new value."""

    legacy: str
    canonical: str
    factor: float = 1.0
    algos: tuple[str, ...] = _EVERY


def _same(canonical: str, *legacy: str, algos: tuple[str, ...] = _EVERY) -> list[LegacyTag]:
    return [LegacyTag(legacy=name, canonical=canonical, algos=algos) for name in legacy]


def _scaled(canonical: str, factor: float, *legacy: str) -> list[LegacyTag]:
    return [LegacyTag(legacy=name, canonical=canonical, factor=factor) for name in legacy]


_ACTOR_LOSSES = ("loss/policy_loss", "train/surrogate_loss", "train/actor_loss")
_INCREMENTAL_H2D = "timing/learner_incremental_h2d_ms"

_NAMED: list[LegacyTag] = [
    *_same("Train/iteration", "iteration"),
    *_same("Train/mean_reward", "reward/mean", "reward/mean_ep100"),
    *_same("Train/mean_episode_length", "episode/length"),
    *_same("Episode/timeout_rate", "episode/timeout_rate"),
    *_same("Loss/surrogate", *_ACTOR_LOSSES, algos=_ON_POLICY),
    *_same("Loss/actor", *_ACTOR_LOSSES, algos=_SAC_FAMILY),
    *_same("Loss/value", "loss/value_loss", "train/value_loss"),
    *_same("Loss/entropy", "train/entropy", "policy_entropy", "actor_entropy"),
    *_same("Loss/critic", "train/qf_loss", "train/critic_loss"),
    *_same("Loss/temperature", "train/alpha_loss", "train/temperature_loss"),
    *_same("Policy/temperature", "train/alpha", "train/temperature"),
    *_same("Policy/mean_std", "policy/mean_std"),
    *_same("Loss/learning_rate", "optim/learning_rate"),
    *_same("Train/global_gradient_norm", "grad/global_norm"),
    *_same("Train/actor_gradient_norm", "train/actor_grad_norm"),
    *_same("Train/critic_gradient_norm", "train/critic_grad_norm"),
    *_same("Train/approx_kl", "train/kl", "ppo/approx_kl", "PPO/approx_kl"),
    *_same(
        "Train/behavior_to_current_log_prob_delta",
        "policy_kl",
        "behavior_to_current_kl",
    ),
    *_same("Train/vtrace_rho_clip_fraction", "vtrace/rho_clip_fraction"),
    *_same("Train/vtrace_rho_p99", "vtrace/rho_raw_p99"),
    *_same("Train/ring_available_slots", "train/available_on_arrive"),
    *_same("Train/rollouts_read", "train/rollouts_read"),
    *_same("Perf/total_fps", "perf/steps_per_sec"),
    *_scaled("Perf/iteration_time", MS_TO_S, "perf/iter_ms"),
    *_scaled("Perf/learning_time", MS_TO_S, "perf/train_time_ms", "timing/learner_train_ms"),
    *_scaled(
        "Perf/collection_time", MS_TO_S, "perf/collect_time_ms", "timing/collector_rollout_ms"
    ),
    *_same("Perf/learner_inference_ms", "timing/inference_total_ms"),
    *_same("Perf/learner_inference_h2d_ms", "timing/inference_h2d_ms"),
    *_same("Perf/learner_inference_forward_ms", "timing/inference_forward_ms"),
    *_same("Perf/learner_inference_d2h_ms", "timing/inference_d2h_ms"),
    *_same("Perf/replay_ingress_h2d_submit_ms", _INCREMENTAL_H2D, algos=_SAC_FAMILY),
    *_same("Perf/learner_replay_stage_ms", _INCREMENTAL_H2D, algos=("appo",)),
    *_same("Perf/replay_ingress_h2d_submit_ms", "timing/replay_ingress_h2d_submit_ms"),
    *_same("Perf/collector_learner_action_wait_ms", "timing/collector_inference_wait_ms"),
    *_scaled("Perf/dp_gradient_sync_ms_per_rank", S_TO_MS, "train/dp_sync_time"),
    *_same("Perf/dp_gradient_sync_calls_per_rank", "train/dp_gradient_sync_calls"),
    # Older still.
    *_same("Perf/learner_collector_wait_ms", "timing/learner_wait_ms"),
    *_same("Perf/collector_env_step_ms", "timing/collector_env_step_total_ms"),
    *_same("Perf/learner_weight_publish_ms", "timing/learner_weight_sync_ms"),
    *_same("Perf/learner_collector_release_ms", "timing/learner_sync_coordination_ms"),
    *_same("Perf/collector_replay_write_ms", "timing/collector_replay_ms"),
]

_PHASES: list[LegacyTag] = [
    LegacyTag(legacy=f"timing/{tag.removeprefix('Perf/')}", canonical=tag)
    for tag in METRICS
    if tag.startswith(("Perf/learner_", "Perf/collector_")) and tag.endswith("_ms")
]

LEGACY_TAGS: tuple[LegacyTag, ...] = (*_NAMED, *_PHASES)

RETIRED_TAGS: tuple[str, ...] = (
    "perf/effective_samples_per_sec",
    "perf/learner_samples_per_sec",
    "perf/collector_active_steps_per_sec",
    "perf/collector_cycle_ms",
    "perf/learner_*_pct",
    "timing/learner_other_ms",
    "perf/learner_pipeline_ms",
    "train/action_std",
    "appo/updates_executed",
    "train/staging_pool_*",
    "timing/collector_weight_sync_ms",
    "timing/collector_weight_apply_ms",
    "timing/collector_action_select_ms",
    "timing/collector_policy_infer_ms",
    "timing/collector_sync_idle_ms",
    "Episode_Reward/*",
)
"""Names (patterns) without an heir."""

_BY_NAME = {(entry.legacy, algo): entry for entry in LEGACY_TAGS for algo in entry.algos}


def canonical_tag(legacy: str, algo: str) -> tuple[str, float] | None:
    """Today's tag and the factor for a legacy tag of that algorithm; None when there is none."""
    entry = _BY_NAME.get((legacy, algo))
    return None if entry is None else (entry.canonical, entry.factor)


def is_legacy(tag: str) -> bool:
    """True for every name of the pre-schema time that we recognise, retired ones included."""
    named = any(entry.legacy == tag for entry in LEGACY_TAGS)
    return named or any(fnmatchcase(tag, pattern) for pattern in RETIRED_TAGS)
