"""Asynchronous PPO: IMPACT's target policy (arXiv 1912.00167) with V-trace targets (1802.01561).

Rollouts come from a policy mu that may be a few versions old. Three policies meet in one iteration:

    mu      acted (its log-probabilities are in the rollout)
    target  the online policy as it was when the iteration began; V-trace corrects mu to it
    theta   the online policy

    r(theta) = pi_theta / max(mu, pi_target) = min(1, mu / pi_target) * pi_theta / mu
    L_pi     = mean( max(-A r, -A clip(r, 1 - eps, 1 + eps)) )
    L_v      = mean( max((V - vs)^2, (V_old + clip(V - V_old, -eps, eps) - vs)^2) )
    L        = L_pi + c_v L_v - c_ent H
    KL(target || theta) of each minibatch, taken before its step, drives the learning rate

After the epochs the normalisers learn the new rollouts and the target follows the online policy,
normaliser included. So within an iteration every observation is scaled in one way, and on-policy
data meet the ratio 1 at the first minibatch.

Life cycle: `build_state` once, `update` per iteration, `state_dict` / `load_state_dict` around a
checkpoint. Everything, the learning rate too, is a tensor on one device; nothing here waits for it.

Legend: T steps, N environments (all staged rollouts side by side), O observation, C critic
observation, A action, F truncated rows, B = T N rows, M rows of a minibatch.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unilab_core.config.on_policy import AppoConfig
from unilab_core.config.on_policy_preset import PRESETS, OnPolicyPreset
from unilab_core.nets.gaussian import (
    GaussianPolicy,
    ValueNet,
    entropy,
    kl_divergence,
    log_prob,
    orthogonal_init,
)
from unilab_core.nets.policy_spec import policy_spec
from unilab_learner.losses.gae import next_state_values
from unilab_learner.losses.guarded_adam import GuardedAdam, flatten_parameters
from unilab_learner.losses.polyak import polyak_update
from unilab_learner.losses.vtrace import vtrace

LR_MIN, LR_MAX = 1e-5, 1e-2
LR_FACTOR = 1.1
"""Change of the learning rate per minibatch under `schedule: adaptive`."""
KL_BAND = 1.2
"""The rate moves when the KL leaves [desired / band, desired * band]."""
RHO_SAMPLE_ROWS = 4096
"""Rows that the 99th percentile of the importance ratios is taken from."""
ADVANTAGE_EPS = 1e-8

AllMean = Callable[[Tensor], Tensor]
"""Mean of a tensor over all learner ranks; identity where there is one."""


@dataclass(kw_only=True, slots=True)
class AppoBatch:
    """Staged rollouts, side by side along N."""

    obs: Tensor
    """[T, N, O]"""
    critic_obs: Tensor
    """[T + 1, N, C]; the last row is the observation after the last step"""
    actions: Tensor
    """[T, N, A]"""
    log_prob: Tensor
    """[T, N] under mu"""
    reward: Tensor
    """[T, N]"""
    terminated: Tensor
    """[T, N] 1.0 where the episode really ended"""
    truncated: Tensor
    """[T, N] 1.0 where the time limit ended it; never both"""
    final_t: Tensor
    """[F] steps of the truncated rows"""
    final_n: Tensor
    """[F] environments of the truncated rows"""
    final_critic_obs: Tensor
    """[F, C] last observations of their episodes"""
    new_obs: Tensor
    """[rows, O] observations not seen in an earlier iteration, for the normaliser"""
    new_critic_obs: Tensor
    """[rows, C] the same, critic group"""
    dropped: Tensor | None = None
    """[T, N] 1.0 where the row is a placeholder of the NaN guard; None where none is"""


@dataclass(kw_only=True, slots=True)
class AppoState:
    """All that learning changes."""

    preset: OnPolicyPreset
    policy: GaussianPolicy
    value: ValueNet
    target: GaussianPolicy
    target_vector: Tensor
    """[P] the parameters of `target`, flat"""
    optimizer: GuardedAdam
    lr: Tensor
    """[] learning rate in force"""
    generator: torch.Generator
    skipped_steps: Tensor
    """[] optimiser steps refused so far because a loss or gradient was not finite"""
    num_updates: int = 0
    """Version of the policy: iterations finished."""
    use_amp: bool = False
    """bf16 products in the forward passes."""

    def state_dict(self) -> dict[str, Any]:
        """Everything `load_state_dict` needs to continue bit for bit (tensors, plain values)."""
        return {
            "policy": self.policy.state_dict(),
            "value": self.value.state_dict(),
            "target": self.target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "lr": self.lr.clone(),
            "generator": self.generator.get_state(),
            "num_updates": self.num_updates,
        }

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.policy.load_state_dict(values["policy"])
        self.value.load_state_dict(values["value"])
        self.target.load_state_dict(values["target"])
        self.optimizer.load_state_dict(values["optimizer"])
        self.lr = values["lr"].to(self.lr.device).clone()
        self.optimizer.lr = self.lr
        self.generator.set_state(values["generator"])
        self.num_updates = int(values["num_updates"])


@dataclass(kw_only=True, slots=True)
class AppoTargets:
    """What stays fixed during the epochs."""

    values: Tensor
    """[T, N] V_old"""
    vs: Tensor
    """[T, N]"""
    advantages: Tensor
    """[T, N]"""
    log_prob: Tensor
    """[T, N] under the target policy"""
    mean: Tensor
    """[T, N, A] of the target policy"""
    std: Tensor
    """[A] of the target policy"""
    rho: Tensor
    """[T, N] ratios target / mu before clipping"""


def build_state(
    cfg: AppoConfig,
    *,
    obs_width: int,
    critic_obs_width: int,
    action_width: int,
    device: torch.device,
    use_amp: bool = False,
) -> AppoState:
    """Build networks and optimiser; call `torch.manual_seed` first for repeatable weights."""
    preset = PRESETS[cfg.preset]
    spec = policy_spec(cfg, obs_width=obs_width, action_width=action_width)
    policy = GaussianPolicy(spec, init_std=cfg.init_std).to(device)
    value = ValueNet(
        critic_obs_width,
        cfg.hidden_dims,
        activation=cfg.activation,
        obs_normalization=cfg.obs_normalization,
        obs_clip=preset.obs_clip,
    ).to(device)
    if preset.orthogonal_init:
        orthogonal_init(policy.net, preset.policy_head_gain)
        orthogonal_init(value.net, preset.value_head_gain)
    lr = torch.tensor(cfg.learning_rate, device=device)
    params = [*policy.parameters(), *value.parameters()]
    target = copy.deepcopy(policy).requires_grad_(False)
    return AppoState(
        preset=preset,
        policy=policy,
        value=value,
        target=target,
        target_vector=flatten_parameters(list(target.parameters())),
        optimizer=GuardedAdam(params, lr=lr, eps=preset.adam_eps),
        lr=lr,
        generator=torch.Generator(device=device).manual_seed(cfg.seed),
        skipped_steps=torch.zeros((), device=device),
        use_amp=use_amp,
    )


def surrogate_loss(ratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """L_pi = mean( max(-A r, -A clip(r, 1 - eps, 1 + eps)) ), both [M]."""
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    return torch.maximum(-advantages * ratio, -advantages * clipped).mean()


def value_loss(values: Tensor, old_values: Tensor, vs: Tensor, clip: float | None) -> Tensor:
    """L_v of the module's text, all [M]; `clip=None` is the plain squared error."""
    error = (values - vs).square()
    if clip is None:
        return error.mean()
    limited = old_values + (values - old_values).clamp(-clip, clip)
    return torch.maximum(error, (limited - vs).square()).mean()


def adapted_lr(lr: Tensor, kl: Tensor, desired_kl: float) -> Tensor:
    """One move of the learning rate; a KL of exactly 0 (nothing moved yet) leaves it alone."""
    down = torch.where(kl > desired_kl * KL_BAND, lr / LR_FACTOR, lr)
    raised = (kl > 0.0) & (kl < desired_kl / KL_BAND)
    return torch.where(raised, lr * LR_FACTOR, down).clamp(LR_MIN, LR_MAX)


@torch.no_grad()
def compute_targets(
    state: AppoState, batch: AppoBatch, cfg: AppoConfig, all_mean: AllMean
) -> AppoTargets:
    """V-trace from mu to the target policy with the current value function."""
    with _autocast(state):
        values = state.value(batch.critic_obs)
        final_values = state.value(batch.final_critic_obs)
        mean, std = state.target(batch.obs)
    target_log_prob = log_prob(batch.actions, mean, std)
    next_values = next_state_values(values, batch.final_t, batch.final_n, final_values)
    done = torch.maximum(batch.terminated, batch.truncated)
    reward = batch.reward
    if batch.dropped is not None:
        # A placeholder's temporal difference is zero: nothing travels to the rows before it.
        placeholder = values[:-1] - cfg.gamma * next_values
        reward = torch.where(batch.dropped > 0.0, placeholder, reward)
    traced = vtrace(
        target_log_prob - batch.log_prob,
        reward,
        values[:-1],
        next_values,
        batch.terminated,
        done,
        gamma=cfg.gamma,
        lam=cfg.lam,
        clip_rho=cfg.vtrace_clip_rho,
        clip_c=cfg.vtrace_clip_c,
        advantage=cfg.vtrace_advantage,
    )
    advantages = traced.advantages
    if not state.preset.advantages_per_minibatch:
        advantages = normalised(advantages, all_mean)
    return AppoTargets(
        values=values[:-1],
        vs=traced.vs,
        advantages=advantages,
        log_prob=target_log_prob,
        mean=mean,
        std=std,
        rho=traced.rho,
    )


def normalised(advantages: Tensor, all_mean: AllMean) -> Tensor:
    """(A - mean) / (std + 1e-8) over every row of every rank."""
    mean = all_mean(advantages.mean())
    variance = all_mean((advantages - mean).square().mean())
    return (advantages - mean) / (variance.sqrt() + ADVANTAGE_EPS)


def update(
    state: AppoState, batch: AppoBatch, cfg: AppoConfig, all_mean: AllMean = lambda tensor: tensor
) -> dict[str, Tensor]:
    """One iteration: targets, epochs of minibatches, normalisers, target policy.

    Returns:
        Canonical tag -> 0-d tensor on the device of the batch.
    """
    targets = compute_targets(state, batch, cfg, all_mean)
    rows = _flat_rows(state, batch, targets)
    num_rows = rows["advantages"].shape[0]
    size = num_rows // cfg.num_mini_batches
    totals: dict[str, Tensor] = {}
    for _ in range(cfg.num_learning_epochs):
        order = torch.randperm(num_rows, generator=state.generator, device=state.lr.device)
        for start in range(0, size * cfg.num_mini_batches, size):
            index = order[start : start + size]
            minibatch = {name: tensor[index] for name, tensor in rows.items()}
            metrics = _minibatch_step(state, minibatch, targets.std, cfg, all_mean)
            for tag, figure in metrics.items():
                totals[tag] = totals[tag] + figure if tag in totals else figure
    num_steps = cfg.num_learning_epochs * cfg.num_mini_batches
    state.num_updates += 1
    _follow(state, batch, cfg)
    return {tag: total / num_steps for tag, total in totals.items()} | _end_metrics(
        state, targets, cfg
    )


def _flat_rows(state: AppoState, batch: AppoBatch, targets: AppoTargets) -> dict[str, Tensor]:
    """[T, N, ...] -> [B, ...] of everything a minibatch needs, observations scaled once."""
    fields = {
        "obs": state.policy.scaled(batch.obs),
        "critic_obs": state.value.scaled(batch.critic_obs[:-1]),
        "actions": batch.actions,
        "behavior_log_prob": batch.log_prob,
        "target_log_prob": targets.log_prob,
        "target_mean": targets.mean,
        "values": targets.values,
        "vs": targets.vs,
        "advantages": targets.advantages,
    }
    rows = {name: tensor.flatten(0, 1) for name, tensor in fields.items()}
    if batch.dropped is None:
        return rows
    kept = batch.dropped.flatten() == 0.0  # waits for the device, in the rare iteration
    return {name: tensor[kept] for name, tensor in rows.items()}


def _minibatch_step(
    state: AppoState,
    rows: dict[str, Tensor],
    target_std: Tensor,
    cfg: AppoConfig,
    all_mean: AllMean,
) -> dict[str, Tensor]:
    """One optimiser step on M rows; the learning rate is settled before it."""
    with _autocast(state):
        mean, std = state.policy.of_scaled(rows["obs"])
        values = state.value.of_scaled(rows["critic_obs"])
    current = log_prob(rows["actions"], mean, std)
    kl = kl_divergence(rows["target_mean"], target_std, mean.detach(), std.detach()).mean()
    kl = all_mean(kl)
    if cfg.schedule == "adaptive":
        state.lr.copy_(adapted_lr(state.lr, kl, cfg.desired_kl))
    advantages = rows["advantages"]
    if state.preset.advantages_per_minibatch:
        advantages = normalised(advantages, all_mean)
    ratio = (current - torch.maximum(rows["behavior_log_prob"], rows["target_log_prob"])).exp()
    policy_term = surrogate_loss(ratio, advantages, cfg.clip_param)
    value_clip = cfg.clip_param if cfg.use_clipped_value_loss else None
    value_term = value_loss(values, rows["values"], rows["vs"], value_clip)
    entropy_term = entropy(std)
    loss = policy_term + cfg.value_loss_coef * value_term - cfg.entropy_coef * entropy_term
    norm, skipped = state.optimizer.step(loss, max_grad_norm=cfg.max_grad_norm, all_mean=all_mean)
    state.skipped_steps += skipped
    with torch.no_grad():
        clipped = ((ratio - 1.0).abs() > cfg.clip_param).float().mean()
        delta = (current - rows["behavior_log_prob"]).mean()
    return {
        "Loss/surrogate": policy_term.detach(),
        "Loss/value": value_term.detach(),
        "Loss/entropy": entropy_term.detach(),
        "Train/global_gradient_norm": norm,
        "Train/approx_kl": kl,
        "Train/clip_fraction": clipped,
        "Train/behavior_to_current_log_prob_delta": delta,
    }


@torch.no_grad()
def _follow(state: AppoState, batch: AppoBatch, cfg: AppoConfig) -> None:
    """Teach the normalisers the new rows, then let the target policy follow."""
    if state.policy.normalizer is not None and state.value.normalizer is not None:
        state.policy.normalizer.update(batch.new_obs)
        state.value.normalizer.update(batch.new_critic_obs)
    if state.num_updates % cfg.target_update_freq:
        return
    # The policy comes first in the flat vector of policy and value function.
    online = state.optimizer.flat[: state.target_vector.numel()]
    polyak_update(state.target_vector, online, cfg.tau)
    for target, online in zip(state.target.buffers(), state.policy.buffers(), strict=True):
        target.copy_(online)


@torch.no_grad()
def _end_metrics(state: AppoState, targets: AppoTargets, cfg: AppoConfig) -> dict[str, Tensor]:
    rho = targets.rho.flatten()
    sample = rho[:: -(-rho.numel() // RHO_SAMPLE_ROWS)]
    return {
        "Train/vtrace_rho_clip_fraction": (rho > cfg.vtrace_clip_rho).float().mean(),
        "Train/vtrace_rho_p99": torch.quantile(sample, 0.99),
        "Loss/learning_rate": state.lr.clone(),
        "Policy/mean_std": state.policy.log_std.exp().mean(),
    }


def _autocast(state: AppoState) -> torch.autocast:
    # Entered per forward pass: autocast keeps cast weights for the length of one context, and an
    # optimiser step inside it would leave them stale.
    return torch.autocast(state.lr.device.type, torch.bfloat16, enabled=state.use_amp)
