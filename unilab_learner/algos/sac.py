"""Soft actor-critic for many parallel environments ("FastSAC", arXiv 2512.01996) and for gym tasks.

Preset `fast`: categorical critics with LayerNorm, each trained against its own target, averaged for
the actor. Preset `classic`: two scalar critics, the smaller one counts (Haarnoja et al. 2018). With
`num_atoms=1` the critics of `fast` are scalar too.

    y   = R + discount * (Z_target(s', a') - alpha log pi(a'|s')),   a' ~ pi(s')
    R   = sum_k gamma^k r_k over at most n steps, cut at the first done (the replay computes it)
    discount = gamma^n, or 0 where the last of those steps terminated (not where it was truncated)

Life cycle: `build_state` once, `update` per batch, `state_dict` / `load_state_dict` around a
checkpoint. Everything is a tensor on one device; nothing here waits for that device.

Legend: B batch rows, O observation, C critic observation, A action, K atoms, M critics.
"""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unilab_core.config.algo import SacConfig
from unilab_core.nets.critics import CriticEnsemble
from unilab_core.nets.squashed_gaussian import ActorSpec, SquashedGaussianActor
from unilab_learner.algos.actor_critic import ActorCriticState, ReplayBatch
from unilab_learner.losses import categorical
from unilab_learner.losses.guarded_adam import GuardedAdam, flatten_parameters
from unilab_learner.losses.polyak import polyak_update

NUM_CRITICS = 2


@dataclass(kw_only=True, slots=True, frozen=True)
class SacPreset:
    """What separates the presets beyond the keys of the configuration."""

    average_critics: bool
    """Mean of the critics for the actor and own targets (True), or the minimum of both (False)."""
    zero_head: bool
    log_std_min: float
    log_std_max: float
    adam_betas: tuple[float, float]
    weight_decay: float


PRESETS = {
    "fast": SacPreset(
        average_critics=True,
        zero_head=True,
        log_std_min=-5.0,
        log_std_max=0.0,
        adam_betas=(0.9, 0.95),
        weight_decay=1e-3,
    ),
    "classic": SacPreset(
        average_critics=False,
        zero_head=False,
        log_std_min=-5.0,
        log_std_max=2.0,
        adam_betas=(0.9, 0.999),
        weight_decay=0.0,
    ),
}


@dataclass(kw_only=True, slots=True)
class SacBatch(ReplayBatch):
    """One minibatch; observations already normalised."""


@dataclass(kw_only=True, slots=True)
class SacState(ActorCriticState[SquashedGaussianActor, CriticEnsemble]):
    """All that learning changes."""

    preset: SacPreset


def build_state(
    cfg: SacConfig,
    *,
    obs_width: int,
    critic_obs_width: int,
    action_low: tuple[float, ...],
    action_high: tuple[float, ...],
    device: torch.device,
) -> SacState:
    """Build networks and optimisers; call `torch.manual_seed` first for repeatable weights."""
    preset = PRESETS[cfg.preset]
    spec = ActorSpec(
        obs_width=obs_width,
        hidden_dims=hidden_widths(cfg.actor_hidden_dim),
        activation=cfg.activation,
        layer_norm=cfg.use_layer_norm,
        log_std_min=preset.log_std_min,
        log_std_max=preset.log_std_max,
        mean_limit=10.0,
        action_low=action_low,
        action_high=action_high,
    )
    actor = SquashedGaussianActor(spec).to(device)
    critics = CriticEnsemble(
        critic_obs_width,
        spec.action_width,
        hidden_widths(cfg.critic_hidden_dim),
        num_critics=NUM_CRITICS,
        num_atoms=cfg.num_atoms,
        activation=cfg.activation,
        layer_norm=cfg.use_layer_norm,
        zero_head=preset.zero_head,
    ).to(device)
    target_critics = copy.deepcopy(critics).requires_grad_(False)
    average_actor = copy.deepcopy(actor).requires_grad_(False)
    log_alpha = torch.tensor(math.log(cfg.alpha_init), device=device, requires_grad=True)
    support = (
        categorical.make_support(cfg.v_min, cfg.v_max, cfg.num_atoms)
        if cfg.num_atoms > 1
        else torch.zeros(1)
    )

    def adam(params: list[Tensor], lr: float, weight_decay: float) -> GuardedAdam:
        return GuardedAdam(params, lr=lr, betas=preset.adam_betas, weight_decay=weight_decay)

    return SacState(
        preset=preset,
        actor=actor,
        critics=critics,
        target_critics=target_critics,
        target_vector=flatten_parameters(list(target_critics.parameters())),
        average_actor=average_actor,
        average_vector=flatten_parameters(list(average_actor.parameters())),
        log_alpha=log_alpha,
        actor_optimizer=adam(list(actor.parameters()), cfg.actor_lr, preset.weight_decay),
        critic_optimizer=adam(list(critics.parameters()), cfg.critic_lr, preset.weight_decay),
        alpha_optimizer=adam([log_alpha], cfg.alpha_lr, 0.0),
        support=support.to(device),
        target_entropy=-cfg.target_entropy_ratio * spec.action_width,
        skipped_steps=torch.zeros((), device=device),
        generator=torch.Generator(device=device).manual_seed(cfg.seed),
        actor_metrics={},
    )


def hidden_widths(dim: int | tuple[int, ...]) -> tuple[int, ...]:
    """All widths as given, or three layers that halve: 512 -> (512, 256, 128)."""
    return (dim, max(dim // 2, 1), max(dim // 4, 1)) if isinstance(dim, int) else tuple(dim)


def decayed(lr: float, num_updates: int, cfg: SacConfig) -> float:
    """Learning rate after `num_updates`: linear from `lr` to `lr_end`, constant afterwards."""
    if cfg.lr_end <= 0.0:
        return lr
    share = min(num_updates / cfg.lr_decay_steps, 1.0)
    return lr + (cfg.lr_end - lr) * share


def critic_target(state: SacState, batch: SacBatch, cfg: SacConfig) -> tuple[Tensor, Tensor]:
    """Sample a' ~ pi(s') and build the target of every critic.

    Returns:
        Target distributions [M, B, K] (or values [M, B, 1] for scalar critics), log pi(a'|s')[B].
    """
    next_action, next_log_prob = state.actor.sample(batch.next_obs, state.generator)
    outputs = state.target_critics(batch.next_critic_obs, next_action)
    entropy_bonus = -state.log_alpha.exp() * next_log_prob
    if cfg.num_atoms == 1:
        values = outputs if state.preset.average_critics else _smaller(outputs, outputs[..., 0])
        returns = batch.reward + batch.discount * (values[..., 0] + entropy_bonus)
        return returns.unsqueeze(-1), next_log_prob
    probs = outputs.softmax(dim=-1)
    if not state.preset.average_critics:
        probs = _smaller(probs, probs @ state.support)
    atoms = batch.reward.unsqueeze(-1) + batch.discount.unsqueeze(-1) * (
        state.support + entropy_bonus.unsqueeze(-1)
    )
    return categorical.project(probs, atoms, cfg.v_min, cfg.v_max), next_log_prob


def critic_loss(outputs: Tensor, target: Tensor) -> Tensor:
    """Sum over critics of the mean CE(target, Q_i), or of the mean (Q_i - y)^2 when scalar.

    Args:
        outputs: [M, B, K] logits, or values when K = 1.
        target: [M, B, K].
    """
    if outputs.shape[-1] == 1:
        return (outputs - target).square().mean(dim=(1, 2)).sum()
    return categorical.cross_entropy(target, outputs)


def temperature_loss(log_alpha: Tensor, log_prob: Tensor, target_entropy: float) -> Tensor:
    """L = - alpha * mean( log pi(a|s) + H_target ): alpha rises while the entropy is too low."""
    return -(log_alpha.exp() * (log_prob + target_entropy).mean())


def actor_loss(alpha: Tensor, log_prob: Tensor, value: Tensor) -> Tensor:
    """L = mean( alpha log pi(a|s) - Q(s, a) ), all [B], with a reparametrised."""
    return (alpha * log_prob - value).mean()


def update(state: SacState, batch: SacBatch, cfg: SacConfig) -> dict[str, Tensor]:
    """One critic and temperature step, every `policy_frequency`-th time an actor step as well.

    Returns:
        Canonical tag -> 0-d tensor on the device of the batch.
    """
    state.actor_optimizer.lr = decayed(cfg.actor_lr, state.num_updates, cfg)
    state.critic_optimizer.lr = decayed(cfg.critic_lr, state.num_updates, cfg)
    with torch.no_grad():
        target, next_log_prob = critic_target(state, batch, cfg)
    outputs = state.critics(batch.critic_obs, batch.action)
    loss = critic_loss(outputs, target)
    critic_norm, skipped = state.critic_optimizer.step(loss, max_grad_norm=cfg.max_grad_norm)
    alpha_loss = temperature_loss(state.log_alpha, next_log_prob, state.target_entropy)
    _, alpha_skipped = state.alpha_optimizer.step(alpha_loss)
    state.skipped_steps += skipped + alpha_skipped
    if state.num_updates % cfg.policy_frequency == 0:
        state.actor_metrics = _update_actor(state, batch, cfg)
    polyak_update(state.target_vector, state.critic_optimizer.flat, cfg.tau)
    state.num_updates += 1
    # The plain mean at first, then the running one: no bias towards the initial weights.
    share = max(1.0 - cfg.policy_ema, 1.0 / state.num_updates)
    polyak_update(state.average_vector, state.actor_optimizer.flat, share)
    target_value = target[..., 0] if cfg.num_atoms == 1 else target @ state.support
    return {
        "Loss/critic": loss.detach(),
        "Loss/temperature": alpha_loss.detach(),
        "Policy/temperature": state.log_alpha.detach().exp(),
        "Train/critic_gradient_norm": critic_norm,
        "Train/target_q_max": target_value.max(),
        "Train/target_q_min": target_value.min(),
        **state.actor_metrics,
    }


def _update_actor(state: SacState, batch: SacBatch, cfg: SacConfig) -> dict[str, Tensor]:
    action, log_prob = state.actor.sample(batch.obs, state.generator)
    outputs = state.critics(batch.critic_obs, action)
    values = (
        outputs[..., 0]
        if cfg.num_atoms == 1
        else categorical.expected_value(outputs, state.support)
    )
    value = values.mean(dim=0) if state.preset.average_critics else values.amin(dim=0)
    loss = actor_loss(state.log_alpha.detach().exp(), log_prob, value)
    norm, skipped = state.actor_optimizer.step(loss, max_grad_norm=cfg.max_grad_norm)
    state.skipped_steps += skipped
    return {
        "Loss/actor": loss.detach(),
        "Loss/entropy": -log_prob.detach().mean(),
        "Train/actor_gradient_norm": norm,
    }


def _smaller(outputs: Tensor, values: Tensor) -> Tensor:
    """Per row the outputs[M, B, K] of the critic with the smallest values[M, B], for all."""
    choice = values.argmin(dim=0)
    rows = torch.arange(choice.shape[0], device=choice.device)
    return outputs[choice, rows].expand_as(outputs)
