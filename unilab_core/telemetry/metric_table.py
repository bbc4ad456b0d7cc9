"""All metrics of schema 1, in order of display. Facts only; the rules are in `metric_schema.py`.

The order of the learner's and the collector's phases is the order of their time lines.
"""

# `**more` are optional columns; MetricSpec's constructor checks their names.
# ruff: noqa: ANN401
from typing import Any

from unilab_core.telemetry.metric_spec import ALGOS, FILES_ONLY, MetricSpec

_P, _A, _S, _F = ALGOS
_ALL = ALGOS
_ASF = (_A, _S, _F)
_SF = (_S, _F)
_PA = (_P, _A)


def _metric(
    tag: str, unit: str, owner: str, algos: tuple[str, ...], label: str, doc: str, **more: Any
) -> MetricSpec:
    return MetricSpec(tag=tag, unit=unit, owner=owner, algos=algos, label=label, doc=doc, **more)


def _learner(tag: str, unit: str, algos: tuple[str, ...], label: str, doc: str) -> MetricSpec:
    return _metric(tag, unit, "learner", algos, label, doc)


def _phase(tag: str, algos: tuple[str, ...], label: str, doc: str, **more: Any) -> MetricSpec:
    fields = {"unit": "ms", "owner": "learner", "part": "phase", **more}
    return MetricSpec(tag=f"Perf/{tag}", algos=algos, label=label, doc=doc, **fields)


def _inference(name: str, label: str, doc: str) -> MetricSpec:
    tag, parent = f"learner_inference_{name}_ms", "Perf/learner_inference_ms"
    return _phase(tag, _SF, label, doc, part="nested", parent=parent, backends=FILES_ONLY)


def _ingress(name: str, unit: str, label: str, doc: str) -> MetricSpec:
    tag = f"Train/replay_ingress_{name}"
    return _metric(tag, unit, "ipc/replay", _SF, label, doc, dp_rule="sum")


def _cycle(name: str, algos: tuple[str, ...], label: str, doc: str, **more: Any) -> MetricSpec:
    fields = {"part": "phase", "aggregation": "mean", "logger_owned": True, **more}
    tag = f"Perf/collector_{name}_ms"
    return _metric(tag, "ms", "collector", algos, label, doc, **fields)


def _env_detail(name: str, label: str, doc: str) -> MetricSpec:
    parent = "Perf/collector_env_step_ms"
    return _cycle(f"env_step_{name}", _ASF, label, doc, part="nested", parent=parent)


def _flight(name: str, unit: str, label: str, doc: str) -> MetricSpec:
    fields = {"aggregation": "max" if name.startswith("max_") else "last", "logger_owned": True}
    tag = f"Perf/collector_inference_{name}"
    return _metric(tag, unit, "collector", _SF, label, doc, **fields)


# Rows are wider when written one field a line; the table reads better as it stands.
# fmt: off
DECLARED: tuple[MetricSpec, ...] = (
    # --- progress and episodes
    _metric("Train/iteration", "iterations", "runner", _ASF, "Iteration",
            "Number of the learner iteration; written once the step axis counts env steps.",
            dp_rule="rank 0", logger_owned=True),
    _metric("Train/mean_reward", "return", "collector", _ALL, "Reward",
            "Mean return of the last 100 episodes as the environment paid it, without any"
            " time-limit correction.",
            when="episode", logger_owned=True),
    _metric("Train/mean_episode_length", "env steps/episode", "collector", _ALL, "Ep Len",
            "Mean length of the last 100 episodes; written only when above zero.",
            when="episode", logger_owned=True),
    _metric("Episode/timeout_rate", "ratio", "collector", _ASF, "Timeout Rate",
            "Time-outs per completed episode since the previous report that had a completion.",
            when="episode", logger_owned=True),

    # --- losses and policy state
    _learner("Loss/surrogate", "loss", _PA, "Surrogate", "Clipped policy loss."),
    _learner("Loss/value", "loss", _PA, "Value", "Value function loss."),
    _learner("Loss/entropy", "nats", _ALL, "Entropy", "Entropy of the policy on the batch."),
    _learner("Loss/actor", "loss", _SF, "Actor", "Actor loss of the last actor update."),
    _learner("Loss/critic", "loss", _SF, "Critic", "Critic loss, all critics together."),
    _learner("Loss/temperature", "loss", _SF, "Temperature", "Loss of the entropy temperature."),
    _learner("Loss/learning_rate", "hyper-parameter", _PA, "Learning Rate",
             "Learning rate in force."),
    _learner("Policy/mean_std", "action units", _PA, "Mean Std",
             "Mean standard deviation of the policy."),
    _learner("Policy/temperature", "coefficient", _SF, "Alpha", "Entropy temperature in force."),

    # --- training diagnostics
    _learner("Train/global_gradient_norm", "norm", (_A,), "Grad Norm",
             "Gradient norm before clipping."),
    _learner("Train/actor_gradient_norm", "norm", (_S,), "Actor Grad",
             "Actor gradient norm before clipping."),
    _learner("Train/critic_gradient_norm", "norm", (_S,), "Critic Grad",
             "Critic gradient norm before clipping."),
    _learner("Train/target_q_max", "discounted return", (_S,), "Target Q Max",
             "Largest bootstrap target of the batch."),
    _learner("Train/target_q_min", "discounted return", (_S,), "Target Q Min",
             "Smallest bootstrap target of the batch."),
    _metric("Train/reward_scale_std", "discounted return", "learner", (_F,), "Reward Scale",
            "Standard deviation that rewards are divided by.", when="reward normalisation"),
    _metric("Train/ring_available_slots", "slots", "runner", (_A,), "Ring Slots",
            "Finished rollouts waiting when the learner arrived at the ring.", dp_rule="sum"),
    _metric("Train/rollouts_read", "rollouts", "runner", (_A,), "Rollouts Read",
            "Rollouts drained from the ring in this iteration.", dp_rule="sum"),
    _ingress("depth", "slots", "Ingress Depth", "Configured slots of the replay ingress."),
    _ingress("occupancy", "slots", "Ingress Occupancy", "Slots published, not yet released."),
    _ingress("high_water", "slots", "Ingress High Water", "Largest occupancy of the whole run."),
    _ingress("backpressure_wait_ms", "ms", "Ingress Backpressure",
             "Total time the collector waited for a free slot."),
    _ingress("dropped_batches", "batches", "Ingress Drops",
             "Total batches refused by a closed or stopping ingress."),
    _learner("Train/approx_kl", "nats", (_A,), "KL",
             "Approximate divergence from the target policy to the current one."),
    _learner("Train/clip_fraction", "ratio", (_A,), "Clip Fraction",
             "Share of samples outside the clipping range."),
    _learner("Train/behavior_to_current_log_prob_delta", "nats", (_A,), "Behavior Delta",
             "Mean log-probability change since the action was taken; signed, no divergence."),
    _learner("Train/vtrace_rho_clip_fraction", "ratio", (_A,), "Rho Clip",
             "Share of importance ratios that V-trace clipped."),
    _learner("Train/vtrace_rho_p99", "ratio", (_A,), "Rho P99",
             "99th percentile of the importance ratios, over a bounded sample."),

    # --- throughput and whole time lines
    _metric("Perf/total_fps", "env steps/s", "runner", _ALL, "Steps/s",
            "Environment steps of the iteration over its wall time.",
            dp_rule="sum", logger_owned=True),
    _metric("Perf/iteration_time", "s", "runner", _ALL, "Iter Wall",
            "Wall time from the start of the learner's loop to the end of the update; written"
            " only when it was measured.",
            part="wall", when="wall measured", logger_owned=True),
    _metric("Perf/collection_time", "s", "collector", _PA, "Rollout Wall",
            "Wall time of one whole rollout.",
            part="wall", aggregation="mean", logger_owned=True),

    # --- exclusive phases of the learner
    _phase("learner_collector_wait_ms", _ASF, "Collector Wait",
           "Waiting until the update may start: for requests, replay and ticks (SAC family),"
           " for a rollout (APPO)."),
    _phase("learner_inference_ms", _SF, "Inference",
           "Answering the collector: observations in, actor forward, actions out."),
    _phase("learner_collector_release_ms", _SF, "Collector Release",
           "Publishing the response; long means that it could not be placed."),
    _phase("learner_replay_batch_wait_ms", _SF, "Replay Batch Wait",
           "Waiting until the ingress is committed and the batch gathered."),
    _phase("learner_replay_stage_ms", (_A,), "Replay Stage",
           "Copying newly arrived rollouts into the learner's staging pool."),
    _phase("learner_replay_sample_ms", _ASF, "Replay Sample", "Taking the ready batch."),
    _phase("learning_time", _ALL, "Learning", "Wall time of the update phase.",
           unit="s", logger_owned=True),
    _phase("learner_weight_publish_ms", (_A,), "Weight Publish",
           "Writing new weights into shared memory."),

    # --- nested and background times of the learner
    _inference("h2d", "Inference H2D", "Observations from the shared slot to the device."),
    _inference("forward", "Inference Forward", "The actor's forward pass, device wait included."),
    _inference("d2h", "Inference D2H", "Actions back into the shared slot."),
    _phase("replay_ingress_h2d_submit_ms", _SF, "Replay H2D Submit",
           "Host time of the latest submission of transitions to the device ring.",
           owner="learner submit thread", part="background", when="accelerator",
           backends=FILES_ONLY),
    _phase("dp_gradient_sync_ms_per_rank", _SF, "DP Sync",
           "Gradient collectives of the iteration: summed, then averaged over ranks.",
           owner="ipc/dp_sync", part="nested", parent="Perf/learning_time",
           when="data parallel"),
    _metric("Perf/dp_gradient_sync_calls_per_rank", "calls", "ipc/dp_sync", _SF, "DP Sync Calls",
            "Gradient collectives of the iteration on each rank.", when="data parallel"),

    # --- the collector's cycle (SAC family: the phases add up; APPO: moving averages of one step)
    _cycle("mlp_infer", (_A,), "MLP Infer", "Policy forward of one step.", part="value"),
    _cycle("inference_request", _SF, "Inference Request",
           "Publishing observations and dones, ringing the learner."),
    _cycle("learner_action_wait", _SF, "Learner Action Wait",
           "From the request to the actions; holds whatever the learner does before it answers."),
    _cycle("env_step", _ASF, "Env Step", "Wall time of env.step()."),
    _env_detail("action_validate", "Action Validate", "Checking the actions."),
    _env_detail("apply_action", "Apply Action", "Turning actions into actuator targets."),
    _env_detail("action_backend", "Action+Backend", "Handing the targets to the backend."),
    _env_detail("backend", "Backend Step",
                "Physics; with an event-driven backend also the wait for its device."),
    _env_detail("update_state", "Update State",
                "Terminations, rewards, commands and observations."),
    _env_detail("reset_done", "Reset Done", "Resetting finished environments."),
    _cycle("transition_extract", _SF, "Transition Extract",
           "Turning step results into transition rows."),
    _cycle("replay_write", _SF, "Replay Write",
           "Writing rows into the bounded ingress, waiting for a slot included."),
    _cycle("metrics_publish", _SF, "Metrics Publish", "Writing the report into its ring."),

    # --- requests in flight, as the collector saw them
    _flight("queue_depth", "requests", "Queue Depth", "Requests the learner has not copied yet."),
    _flight("action_backlog", "requests", "Action Backlog", "Actions published, not consumed."),
    _flight("max_action_backlog", "requests", "Max Action Backlog",
            "Largest backlog since the last accepted report."),
    _flight("in_flight", "requests", "In Flight", "Requests whose actions are not consumed."),
    _flight("max_in_flight", "requests", "Max In Flight",
            "Largest number in flight since the last accepted report."),
    _flight("publication_lag", "ticks", "Publication Lag",
            "Ticks the published response is behind."),
    _flight("max_publication_lag", "ticks", "Max Publication Lag",
            "Largest lag since the last accepted report."),

    # --- open families
    _metric("reward/<term>", "weighted reward", "environment", _ALL, "Reward term",
            "Raw value x weight of one reward term before dt: mean over environments, then over"
            " the reports of the iteration.",
            aggregation="mean", logger_owned=True),
    _metric("Episode_Termination/<term>", "episodes", "environment", _ALL, "Termination",
            "Environments that this termination term reset since the previous iteration.",
            aggregation="sum", dp_rule="sum", logger_owned=True),
    _metric("Loss/aux_<name>", "loss", "learner", (_F,), "Auxiliary loss",
            "An additional loss of a custom actor."),
)
# fmt: on
