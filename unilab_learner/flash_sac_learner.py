"""FlashSAC between the loop and `algos.flash_sac`: replay, held noise, reward scale, figures.

One iteration, in the order of the loop's phases:

    gather()    draw `updates_per_step` batches from the replay in one pass (Replay Batch Wait)
    take()      scale the rewards and cut the rows into batches             (Replay Sample)
    learn()     the updates, then one look at the figures                   (Learning)

Legend: U updates per iteration, B batch rows, E environments, O/C observations, A actions.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from unilab_core.config.flash_sac import FlashSacConfig
from unilab_core.contracts import EnvSpec
from unilab_core.nets.unit_networks import UnitActor
from unilab_learner.algos import flash_sac
from unilab_learner.losses.reward_normalizer import RewardNormalizer
from unilab_learner.noise_repeat import NoiseRepeater
from unilab_learner.replay.buffer import ReplayBuffer, ReplayRows, StoredTick
from unilab_learner.replay.mirror import Mirror, mirror_of
from unilab_learner.sac_learner import SAMPLER_SEED_OFFSET, action_bound, random_actions

SETTLE_ROWS = 4096
"""Rows that the statistics of the averaged policy are taken from."""
SETTLE_SEED = 0


class FlashSacLearner:
    """Everything of one rank that learning reads or changes, on one device."""

    def __init__(
        self, cfg: FlashSacConfig, spec: EnvSpec, device: torch.device, *, use_amp: bool
    ) -> None:
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.device = device
        self.state = flash_sac.build_state(
            cfg,
            obs_width=spec.obs_width,
            critic_obs_width=spec.critic_obs_width,
            action_low=action_bound(spec.action_low, -1.0, spec.action_width),
            action_high=action_bound(spec.action_high, 1.0, spec.action_width),
            device=device,
        )
        self._mirror: Mirror | None = mirror_of(spec, device) if cfg.symmetry_augmentation else None
        self.reward_normalizer: RewardNormalizer | None = (
            RewardNormalizer(spec.num_envs, gamma=cfg.gamma, g_max=cfg.normalized_g_max).to(device)
            if cfg.normalize_reward
            else None
        )
        self.noise = NoiseRepeater(
            spec.num_envs,
            spec.action_width,
            mu=cfg.noise_zeta_mu,
            max_repeat=cfg.noise_max_repeat,
            device=device,
        )
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

    def acting(self) -> tuple[UnitActor, None]:
        """The actor, for `policy.pt`; it normalises its observations itself."""
        if self.cfg.policy_ema == 0.0 or not self.replay.is_ready:
            return self.state.actor, None
        # A stream of its own: exporting must not change what is learned.
        sampler = torch.Generator(device=self.device).manual_seed(SETTLE_SEED)
        rows = self._draw(SETTLE_ROWS, sampler)
        return flash_sac.settle_average(self.state, rows.obs), None

    def act(self, obs: Tensor, ended: Tensor) -> Tensor:
        """Exploring actions[E, A] for obs[E, O]; ended[E] is nonzero where an episode ended."""
        noise = self.noise.next(ended, self.state.generator)
        return self.state.actor.explore(obs, noise)

    def act_randomly(self, obs: Tensor, ended: Tensor) -> Tensor:
        """Actions[E, A] uniform over the action space: the warm-up."""
        del ended
        return random_actions(self.state.actor, obs.shape[0], self.state.generator)

    def observe(self, tick: StoredTick) -> None:
        """Take note of one stored tick."""
        if self._ticks_before + self.replay.ticks_written == self.cfg.replay_restart_tick:
            self.replay.forget()
        if self.reward_normalizer is not None:
            self.reward_normalizer.observe(tick.reward, tick.done)

    def gather(self) -> None:
        """Draw the rows of the next iteration."""
        self._rows = self._draw(self.rows_per_iteration, self._sampler)

    def take(self) -> list[flash_sac.FlashBatch]:
        """Cut the gathered rows into U batches of B, rewards in units of the newest scale."""
        rows = self._rows
        assert rows is not None, "take before gather"
        self._rows = None
        if self.reward_normalizer is not None:
            rows.reward = rows.reward / self.reward_normalizer.scale
        pieces = {
            field.name: getattr(rows, field.name).split(self.cfg.batch_size)
            for field in fields(flash_sac.FlashBatch)
        }
        return [
            flash_sac.FlashBatch(**{name: piece[index] for name, piece in pieces.items()})
            for index in range(self.cfg.updates_per_step)
        ]

    def learn(self, batches: list[flash_sac.FlashBatch]) -> tuple[dict[str, float], int]:
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
                metrics = flash_sac.update(self.state, batch, self.cfg)
        if self.reward_normalizer is not None:
            metrics["Train/reward_scale_std"] = self.reward_normalizer.scale
        *values, skipped = torch.stack([*metrics.values(), self.state.skipped_steps]).tolist()
        return dict(zip(metrics, values, strict=True)), int(skipped)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay rows."""
        normalizer = self.reward_normalizer
        return {
            "flash_sac": self.state.state_dict(),
            "ticks": self._ticks_before + self.replay.ticks_written,
            # What `policy.pt` would hold: an average cannot be made fit to act without the replay.
            "policy": self.acting()[0].state_dict(),
            "reward_normalizer": None if normalizer is None else normalizer.state_dict(),
            "sampler": self._sampler.get_state(),
            "torch_rng": torch.get_rng_state(),
        }

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; the replay starts empty."""
        self.state.load_state_dict(values["flash_sac"])
        self._ticks_before = int(values["ticks"])
        if self.reward_normalizer is not None and values["reward_normalizer"] is not None:
            self.reward_normalizer.load_state_dict(values["reward_normalizer"])
        self._sampler.set_state(values["sampler"])
        torch.set_rng_state(values["torch_rng"])

    def _draw(self, num_rows: int, sampler: torch.Generator) -> ReplayRows:
        rows = self.replay.sample(num_rows, sampler)
        return rows if self._mirror is None else self._mirror.every_second(rows)
