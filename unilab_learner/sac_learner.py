"""SAC between the loop and `algos.sac`: the normalisers of the observations.

Replay, mirrored rows and figures: `replay_learner`.

Legend: as in `replay_learner`.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from unilab_core.config.algo import SacConfig
from unilab_core.contracts import EnvSpec
from unilab_core.nets.normalizer import ObsNormalizer
from unilab_core.nets.squashed_gaussian import SquashedGaussianActor
from unilab_learner.algos import sac
from unilab_learner.replay.buffer import StoredTick
from unilab_learner.replay_learner import ReplayLearner, action_bound


class SacLearner(ReplayLearner[SacConfig, sac.SacState, sac.SacBatch]):
    """Everything of one rank that learning reads or changes, on one device."""

    def __init__(
        self, cfg: SacConfig, spec: EnvSpec, device: torch.device, *, use_amp: bool
    ) -> None:
        super().__init__(cfg, spec, device, use_amp=use_amp)
        self.state = sac.build_state(
            cfg,
            obs_width=spec.obs_width,
            critic_obs_width=spec.critic_obs_width,
            action_low=action_bound(spec.action_low, -1.0, spec.action_width),
            action_high=action_bound(spec.action_high, 1.0, spec.action_width),
            device=device,
        )
        self.obs_normalizer: ObsNormalizer | None = None
        self.critic_obs_normalizer: ObsNormalizer | None = None
        if cfg.obs_normalization:
            self.obs_normalizer = ObsNormalizer(spec.obs_width).to(device)
            self.critic_obs_normalizer = ObsNormalizer(spec.critic_obs_width).to(device)

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

    def observe(self, tick: StoredTick) -> None:
        """Feed the normalisers one stored tick."""
        super().observe(tick)
        if self.obs_normalizer is not None and self.critic_obs_normalizer is not None:
            self.obs_normalizer.update(tick.obs)
            self.critic_obs_normalizer.update(tick.critic_obs)

    def take(self) -> list[sac.SacBatch]:
        """Cut the gathered rows into U batches of B, observations normalised."""
        rows = self._gathered()
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
        return self._cut(parts, sac.SacBatch)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the replay rows."""
        normalizers = (self.obs_normalizer, self.critic_obs_normalizer)
        return {
            "sac": self.state.state_dict(),
            "normalizers": [None if item is None else item.state_dict() for item in normalizers],
            **self._shared_state(),
        }

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; the replay starts empty."""
        self.state.load_state_dict(values["sac"])
        normalizers = (self.obs_normalizer, self.critic_obs_normalizer)
        for item, stored in zip(normalizers, values["normalizers"], strict=True):
            if item is not None:
                item.load_state_dict(stored)
        self._load_shared_state(values)

    def _update(self, batch: sac.SacBatch) -> dict[str, Tensor]:
        return sac.update(self.state, batch, self.cfg)
