"""FlashSAC: soft actor-critic on unit-norm networks with joint batch statistics.

    y_z  = R~ + discount * (z - alpha log pi(a'|s'))     for every atom z,   a' ~ pi(s')
    m    = Proj(y_z, p),  p = distribution of the target critic with the smaller mean at (s', a')
    R~   = n-step reward sum / reward scale, cut at the first done (the replay computes it)
    discount = gamma^n, or 0 where the last of those steps terminated (not where it was truncated)

Critics see [s; s'] and [a; a'] as one batch, so that both halves are normalised by the same
statistics; the first half is the prediction, the target critics' second half the target. The actor
sees [s; s'] likewise. Everything else (a', the actor's critics, acting) uses running statistics.
Every optimiser step is followed by a projection onto the unit spheres; the target critics follow by
an average of the weights alone and move their own statistics.

Life cycle: `build_state` once, `update` per batch, `state_dict` / `load_state_dict` around a
checkpoint. Everything is a tensor on one device; nothing here waits for that device.

Legend: B batch rows, O observation, C critic observation, A action, K atoms, M critics.
"""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unilab_core.config.flash_sac import FlashSacConfig
from unilab_core.nets.unit_networks import UnitActor, UnitActorSpec, UnitCritics
from unilab_core.nets.unit_norm import project, set_momentum
from unilab_learner.algos.actor_critic import ActorCriticState, ReplayBatch
from unilab_learner.losses import categorical
from unilab_learner.losses.guarded_adam import GuardedAdam, flatten_parameters
from unilab_learner.losses.polyak import polyak_update

NUM_CRITICS = 2


@dataclass(kw_only=True, slots=True)
class FlashBatch(ReplayBatch):
    """One minibatch; rewards already scaled, observations as the environment gives them."""


@dataclass(kw_only=True, slots=True)
class FlashState(ActorCriticState[UnitActor, UnitCritics]):
    """All that learning changes."""


def build_state(
    cfg: FlashSacConfig,
    *,
    obs_width: int,
    critic_obs_width: int,
    action_low: tuple[float, ...],
    action_high: tuple[float, ...],
    device: torch.device,
) -> FlashState:
    """Build networks and optimisers; call `torch.manual_seed` first for repeatable weights."""
    spec = UnitActorSpec(
        obs_width=obs_width,
        hidden_dim=cfg.actor_hidden_dim,
        num_blocks=cfg.num_blocks,
        expansion=cfg.block_expansion,
        action_low=action_low,
        action_high=action_high,
    )
    actor = UnitActor(spec)
    critics = UnitCritics(
        critic_obs_width,
        spec.action_width,
        cfg.critic_hidden_dim,
        num_atoms=cfg.num_atoms,
        num_blocks=cfg.num_blocks,
        expansion=cfg.block_expansion,
        num_critics=NUM_CRITICS,
    )
    for network in (actor, critics):
        network.to(device)
        project(network)
        set_momentum(network, cfg.bn_momentum)
    target_critics = copy.deepcopy(critics).requires_grad_(False)
    average_actor = copy.deepcopy(actor).requires_grad_(False)
    log_alpha = torch.tensor(math.log(cfg.alpha_init), device=device, requires_grad=True)
    return FlashState(
        actor=actor,
        critics=critics,
        target_critics=target_critics,
        target_vector=flatten_parameters(list(target_critics.parameters())),
        average_actor=average_actor,
        average_vector=flatten_parameters(list(average_actor.parameters())),
        log_alpha=log_alpha,
        actor_optimizer=GuardedAdam(list(actor.parameters()), lr=cfg.actor_lr),
        critic_optimizer=GuardedAdam(list(critics.parameters()), lr=cfg.critic_lr),
        alpha_optimizer=GuardedAdam([log_alpha], lr=cfg.alpha_lr),
        support=categorical.make_support(cfg.v_min, cfg.v_max, cfg.num_atoms).to(device),
        target_entropy=entropy_of_sigma(cfg.temp_target_sigma, spec.action_width),
        skipped_steps=torch.zeros((), device=device),
        generator=torch.Generator(device=device).manual_seed(cfg.seed),
        actor_metrics={},
    )


def entropy_of_sigma(sigma: float, action_width: int) -> float:
    """H_target = A/2 log(2 pi e sigma^2): the entropy of A Gaussians of that spread, in nats."""
    return 0.5 * action_width * math.log(2.0 * math.pi * math.e * sigma**2)


def decayed(lr: float, num_updates: int, cfg: FlashSacConfig) -> float:
    """Learning rate after `num_updates`: half a cosine from `lr` to `lr_end`, then constant."""
    if cfg.lr_end <= 0.0 or lr <= 0.0:
        return lr
    share = min(num_updates / cfg.lr_decay_steps, 1.0)
    return cfg.lr_end + (lr - cfg.lr_end) * 0.5 * (1.0 + math.cos(math.pi * share))


def update(state: FlashState, batch: FlashBatch, cfg: FlashSacConfig) -> dict[str, Tensor]:
    """One critic step, every `policy_frequency`-th time actor and temperature, then the targets.

    Returns:
        Canonical tag -> 0-d tensor on the device of the batch.
    """
    for optimizer, lr in (
        (state.actor_optimizer, cfg.actor_lr),
        (state.critic_optimizer, cfg.critic_lr),
        (state.alpha_optimizer, cfg.alpha_lr),
    ):
        optimizer.lr = decayed(lr, state.num_updates, cfg)
    since = state.num_updates - cfg.actor_starts
    actor_is_due = since >= 0 and since % cfg.policy_frequency == 0
    if actor_is_due and cfg.policy_before_critic:
        state.actor_metrics = update_actor(state, batch, cfg)
    loss = update_critics(state, batch, cfg)
    if actor_is_due and not cfg.policy_before_critic:
        state.actor_metrics = update_actor(state, batch, cfg)
    polyak_update(state.target_vector, state.critic_optimizer.flat, cfg.tau)
    state.num_updates += 1
    if cfg.policy_ema > 0.0:
        # The plain mean at first, then the running one: no bias towards the initial weights.
        share = max(1.0 - cfg.policy_ema, 1.0 / state.num_updates)
        polyak_update(state.average_vector, state.actor_optimizer.flat, share)
    return {
        "Loss/critic": loss,
        "Policy/temperature": state.log_alpha.detach().exp(),
        **state.actor_metrics,
    }


def update_critics(state: FlashState, batch: FlashBatch, cfg: FlashSacConfig) -> Tensor:
    """One step of the critics; returns L = mean over rows and critics of CE(m, Q_i(s, a))."""
    with torch.no_grad():
        next_action, next_log_prob = state.actor.sample(batch.next_obs, state.generator)
        joint_obs = torch.cat((batch.critic_obs, batch.next_critic_obs))
        joint_action = torch.cat((batch.action, next_action))
        target = critic_target(state, batch, cfg, (joint_obs, joint_action), next_log_prob)
    first = slice(batch.obs.shape[0])
    logits = state.critics(joint_obs, joint_action, batch_stats=True, keep=first)
    loss = categorical.cross_entropy(target, logits) / NUM_CRITICS
    _, skipped = state.critic_optimizer.step(loss, max_grad_norm=cfg.max_grad_norm)
    project(state.critics)
    state.skipped_steps += skipped
    return loss.detach()


def critic_target(
    state: FlashState,
    batch: FlashBatch,
    cfg: FlashSacConfig,
    joint: tuple[Tensor, Tensor],
    next_log_prob: Tensor,
) -> Tensor:
    """The distribution m[B, K] that both critics learn.

    Args:
        state: networks.
        batch: B rows.
        cfg: support.
        joint: critic observations [2B, C] and actions [2B, A] of [s; s'] and [a; a'].
        next_log_prob: [B] log pi(a'|s').
    """
    second = slice(batch.obs.shape[0], None)
    logits = state.target_critics(*joint, batch_stats=True, keep=second)
    probs = logits.softmax(dim=-1)
    choice = (probs @ state.support).argmin(dim=0)
    smaller = probs[choice, torch.arange(choice.shape[0], device=choice.device)]
    bonus = -state.log_alpha.exp() * next_log_prob
    atoms = batch.reward.unsqueeze(-1) + batch.discount.unsqueeze(-1) * (
        state.support + bonus.unsqueeze(-1)
    )
    return categorical.project(smaller, atoms, cfg.v_min, cfg.v_max)


def update_actor(state: FlashState, batch: FlashBatch, cfg: FlashSacConfig) -> dict[str, Tensor]:
    """One step of actor and temperature.

    L_pi = mean( alpha log pi(a|s) - min_i E[Q_i(s, a)] ),   L_alpha = alpha (H(pi) - H_target)
    """
    joint_obs = torch.cat((batch.obs, batch.next_obs))
    first = slice(batch.obs.shape[0])
    action, log_prob = state.actor.sample(joint_obs, state.generator, batch_stats=True, keep=first)
    logits = state.critics(batch.critic_obs, action, batch_stats=False)
    value = categorical.expected_value(logits, state.support).amin(dim=0)
    loss = (state.log_alpha.detach().exp() * log_prob - value).mean()
    _, skipped = state.actor_optimizer.step(loss, max_grad_norm=cfg.max_grad_norm)
    project(state.actor)
    entropy = -log_prob.detach().mean()
    alpha_loss = temperature_loss(state.log_alpha, entropy, state.target_entropy)
    _, alpha_skipped = state.alpha_optimizer.step(alpha_loss)
    state.skipped_steps += skipped + alpha_skipped
    return {
        "Loss/actor": loss.detach(),
        "Loss/entropy": entropy,
        "Loss/temperature": alpha_loss.detach(),
    }


def temperature_loss(log_alpha: Tensor, entropy: Tensor, target_entropy: float) -> Tensor:
    """L = alpha (H - H_target): alpha rises while the entropy is too low."""
    return log_alpha.exp() * (entropy - target_entropy)


@torch.no_grad()
def settle_average(state: FlashState, obs: Tensor) -> UnitActor:
    """Make the averaged actor fit to act: weights onto their spheres, statistics of obs[B, O].

    A mean of unit vectors is shorter than 1, and no layer's running statistics belong to it.
    """
    settled = copy.deepcopy(state.average_actor)
    project(settled)
    set_momentum(settled, 1.0)
    settled(obs, batch_stats=True)
    return settled
