"""SAC between the loop and `algos.sac`: replay, normalisers, mirrored rows, precision, figures.

One iteration, in the order of the loop's phases:

    gather()    draw `updates_per_step` batches from the replay in one pass (Replay Batch Wait)
    take()      normalise and cut them into batches                         (Replay Sample)
    learn()     the updates, then one look at the figures                   (Learning)

Legend: U updates per iteration, B batch rows, E environments, O/C observations, A actions.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from unilab_core.config.algo import SacConfig
from unilab_core.contracts import EnvSpec
from unilab_core.nets.normalizer import ObsNormalizer
from unilab_core.nets.squashed_gaussian import SquashedGaussianActor
from unilab_learner.algos import sac
from unilab_learner.replay.buffer import ReplayBuffer, ReplayRows, StoredTick
from unilab_learner.replay.mirror import Mirror, mirror_of

SAMPLER_SEED_OFFSET = 7919
"""Keeps the replay's random stream apart from the policy's, which starts at the bare seed."""


class SacLearner:
    """Everything of one rank that learning reads or changes, on one device."""

    def __init__(
        self, cfg: SacConfig, spec: EnvSpec, device: torch.device, *, use_amp: bool
    ) -> None:
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.device = device
        self.state = sac.build_state(
            cfg,
            obs_width=spec.obs_width,
            critic_obs_width=spec.critic_obs_width,
            action_low=action_bound(spec.action_low, -1.0, spec.action_width),
            action_high=action_bound(spec.action_high, 1.0, spec.action_width),
            device=device,
        )
        self._mirror: Mirror | None = mirror_of(spec, device) if cfg.symmetry_augmentation else None
        self.obs_normalizer: ObsNormalizer | None = None
        self.critic_obs_normalizer: ObsNormalizer | None = None
        if cfg.obs_normalization:
            self.obs_normalizer = ObsNormalizer(spec.obs_width).to(device)
            self.critic_obs_normalizer = ObsNormalizer(spec.critic_obs_width).to(device)
        self.replay = ReplayBuffer(
            num_ticks=cfg.replay_buffer_n,
            num_envs=spec.num_envs,
            obs_width=spec.obs_width,
            critic_obs_width=spec.critic_obs_width,
            action_width=spec.action_width,
            gamma=cfg.gamma,
            n_step=cfg.n_step,
            age_decay=cfg.age_decay,
            device=device,
        )
        self._ticks_before = 0  # stored by the runs that this one continues
        self._sampler = torch.Generator(device=device).manual_seed(cfg.seed + SAMPLER_SEED_OFFSET)
        self._use_amp = use_amp
        self._rows: ReplayRows | None = None

    @property
    def rows_per_iteration(self) -> int:
        """Replay rows that one call of `learn` trains on."""
        return self.cfg.batch_size * self.cfg.updates_per_step

    @property
    def rows_per_batch(self) -> int:
        """Rows of one update."""
        return self.cfg.batch_size

    def acting(self) -> tuple[SquashedGaussianActor, ObsNormalizer | None]:
        """Actor and normaliser, for `policy.pt`."""
        actor = self.state.average_actor if self.cfg.policy_ema > 0.0 else self.state.actor
        return actor, self.obs_normalizer

    def act(self, obs: Tensor, ended: Tensor) -> Tensor:
        """Exploring actions[E, A] for obs[E, O]; every step draws its own noise."""
        del ended
        if self.obs_normalizer is not None:
            obs = self.obs_normalizer(obs)
        return self.state.actor.sample(obs, self.state.generator)[0]

    def act_randomly(self, obs: Tensor, ended: Tensor) -> Tensor:
        """Actions[E, A] uniform over the action space: the warm-up."""
        del ended
        return random_actions(self.state.actor, obs.shape[0], self.state.generator)

    def observe(self, tick: StoredTick) -> None:
        """Feed the normalisers one stored tick."""
        if self._ticks_before + self.replay.ticks_written == self.cfg.replay_restart_tick:
            self.replay.forget()
        if self.obs_normalizer is not None and self.critic_obs_normalizer is not None:
            self.obs_normalizer.update(tick.obs)
            self.critic_obs_normalizer.update(tick.critic_obs)

    def gather(self) -> None:
        """Draw the rows of the next iteration."""
        rows = self.replay.sample(self.rows_per_iteration, self._sampler)
        self._rows = rows if self._mirror is None else self._mirror.every_second(rows)

    def take(self) -> list[sac.SacBatch]:
        """Cut the gathered rows into U batches of B, observations normalised."""
        rows = self._rows
        assert rows is not None, "take before gather"
        self._rows = None
        normal, critic_normal = self.obs_normalizer, self.critic_obs_normalizer
        parts = {
            "obs": rows.obs if normal is None else normal(rows.obs),
            "next_obs": rows.next_obs if normal is None else normal(rows.next_obs),
            "critic_obs": rows.critic_obs
            if critic_normal is None
            else critic_normal(rows.critic_obs),
            "next_critic_obs": rows.next_critic_obs
            if critic_normal is None
            else critic_normal(rows.next_critic_obs),
            "action": rows.action,
            "reward": rows.reward,
            "discount": rows.discount,
        }
        pieces = {name: part.split(self.cfg.batch_size) for name, part in parts.items()}
        return [
            sac.SacBatch(**{name: piece[index] for name, piece in pieces.items()})
            for index in range(self.cfg.updates_per_step)
        ]

    def learn(self, batches: list[sac.SacBatch]) -> tuple[dict[str, float], int]:
        """Run the updates.

        Returns:
            The figures of the last update by canonical tag, and how many optimiser steps have been
            refused as non-finite since the start. Reading them is the only wait for the device.
        """
        metrics: dict[str, Tensor] = {}
        # Without the cache: it keeps the bf16 copies of the weights for the length of the context,
        # so every update after the first would run on the weights of before.
        with torch.autocast(
            self.device.type, torch.bfloat16, enabled=self._use_amp, cache_enabled=False
        ):
            for batch in batches:
                metrics = sac.update(self.state, batch, self.cfg)
        *values, skipped = torch.stack([*metrics.values(), self.state.skipped_steps]).tolist()
        return dict(zip(metrics, values, strict=True)), int(skipped)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay rows."""
        normalizers = (self.obs_normalizer, self.critic_obs_normalizer)
        return {
            "sac": self.state.state_dict(),
            "ticks": self._ticks_before + self.replay.ticks_written,
            "normalizers": [None if item is None else item.state_dict() for item in normalizers],
            "sampler": self._sampler.get_state(),
            "torch_rng": torch.get_rng_state(),
        }

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; the replay starts empty."""
        self.state.load_state_dict(values["sac"])
        self._ticks_before = int(values["ticks"])
        normalizers = (self.obs_normalizer, self.critic_obs_normalizer)
        for item, stored in zip(normalizers, values["normalizers"], strict=True):
            if item is not None:
                item.load_state_dict(stored)
        self._sampler.set_state(values["sampler"])
        torch.set_rng_state(values["torch_rng"])


def action_bound(bound: tuple[float, ...] | None, default: float, width: int) -> tuple[float, ...]:
    """The bound of the action space, or the unit box where the environment has none."""
    return (default,) * width if bound is None else bound


class BoundedActor(Protocol):
    """What random actions need of an actor."""

    scale: Tensor
    """[A] half the width of the action space"""
    bias: Tensor
    """[A] its middle"""


def random_actions(actor: BoundedActor, num_rows: int, generator: torch.Generator) -> Tensor:
    """Actions[B, A] uniform over the action space."""
    shape, device = (num_rows, actor.scale.shape[0]), actor.scale.device
    unit = torch.rand(shape, generator=generator, device=device)
    return (2.0 * unit - 1.0) * actor.scale + actor.bias
