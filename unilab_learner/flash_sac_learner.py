"""FlashSAC between the loop and `algos.flash_sac`: held noise, reward scale, exported average.

Replay, mirrored rows and figures: `replay_learner`.

Legend: as in `replay_learner`.
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
from unilab_learner.replay.buffer import StoredTick
from unilab_learner.replay_learner import ReplayLearner, action_bound

SETTLE_ROWS = 4096
"""Rows that the statistics of the averaged policy are taken from."""
SETTLE_SEED = 0


class FlashSacLearner(ReplayLearner[FlashSacConfig, flash_sac.FlashState, flash_sac.FlashBatch]):
    """Everything of one rank that learning reads or changes, on one device."""

    def __init__(
        self, cfg: FlashSacConfig, spec: EnvSpec, device: torch.device, *, use_amp: bool
    ) -> None:
        super().__init__(cfg, spec, device, use_amp=use_amp)
        self.state = flash_sac.build_state(
            cfg,
            obs_width=spec.obs_width,
            critic_obs_width=spec.critic_obs_width,
            action_low=action_bound(spec.action_low, -1.0, spec.action_width),
            action_high=action_bound(spec.action_high, 1.0, spec.action_width),
            device=device,
        )
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

    def observe(self, tick: StoredTick) -> None:
        """Feed the reward scale one stored tick."""
        super().observe(tick)
        if self.reward_normalizer is not None:
            self.reward_normalizer.observe(tick.reward, tick.done)

    def take(self) -> list[flash_sac.FlashBatch]:
        """Cut the gathered rows into U batches of B, rewards in units of the newest scale."""
        rows = self._gathered()
        if self.reward_normalizer is not None:
            rows.reward = rows.reward / self.reward_normalizer.scale
        names = [field.name for field in fields(flash_sac.FlashBatch)]
        return self._cut({name: getattr(rows, name) for name in names}, flash_sac.FlashBatch)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay rows."""
        normalizer = self.reward_normalizer
        return {
            "flash_sac": self.state.state_dict(),
            # What `policy.pt` would hold: an average cannot be made fit to act without the replay.
            "policy": self.acting()[0].state_dict(),
            "reward_normalizer": None if normalizer is None else normalizer.state_dict(),
            **self._shared_state(),
        }

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; the replay starts empty."""
        self.state.load_state_dict(values["flash_sac"])
        if self.reward_normalizer is not None and values["reward_normalizer"] is not None:
            self.reward_normalizer.load_state_dict(values["reward_normalizer"])
        self._load_shared_state(values)

    def _update(self, batch: flash_sac.FlashBatch) -> dict[str, Tensor]:
        return flash_sac.update(self.state, batch, self.cfg)

    def _more_metrics(self) -> dict[str, Tensor]:
        normalizer = self.reward_normalizer
        return {} if normalizer is None else {"Train/reward_scale_std": normalizer.scale}
