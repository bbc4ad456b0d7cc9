"""APPO between the loop and `algos.appo`: staging, rewards, weights, figures.

One iteration, in the order of the loop's phases:

    stage()     copy newly arrived rollouts into the pool        (Replay Stage)
    sample()    the pool as one batch                            (Replay Sample)
    learn()     the update, then one look at the figures         (Learning)
    pack()      flat weights for the collector                   (Weight Publish)

Legend: T steps, E environments, P flat policy values.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from unilab_core.config.on_policy import AppoConfig
from unilab_core.contracts import EnvSpec
from unilab_core.nets.gaussian import GaussianPolicy, pack_policy
from unilab_ipc.rollout_ring import RolloutSlot
from unilab_learner.algos import appo
from unilab_learner.losses.reward_scaler import RewardScaler
from unilab_learner.rollout_pool import RolloutPool


class AppoLearner:
    """Everything of one rank that learning reads or changes, on one device."""

    def __init__(
        self, cfg: AppoConfig, spec: EnvSpec, device: torch.device, *, use_amp: bool
    ) -> None:
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.device = device
        self.state = appo.build_state(
            cfg,
            obs_width=spec.obs_width,
            critic_obs_width=spec.critic_obs_width,
            action_width=spec.action_width,
            device=device,
            use_amp=use_amp,
        )
        self._scaler: RewardScaler | None = None
        if self.state.preset.scale_rewards:
            self._scaler = RewardScaler(
                spec.num_envs, gamma=cfg.gamma, limit=self.state.preset.reward_clip
            ).to(device)
        self.pool = RolloutPool(cfg, spec, device, self._scaler)
        self._batch: appo.AppoBatch | None = None
        self._rows = 0

    @property
    def version(self) -> int:
        """Version of the policy: iterations it has learned from."""
        return self.state.num_updates

    @property
    def rows_per_batch(self) -> int:
        """Rows of one minibatch while every place of the pool is in use."""
        rows = self.cfg.num_envs * self.cfg.steps_per_env * self.cfg.replay_queue_size
        return rows // self.cfg.num_mini_batches

    @property
    def rows_per_iteration(self) -> int:
        """Rows that the last call of `learn` trained on, epochs counted."""
        return self._rows

    def stage(self, slot: RolloutSlot) -> bool:
        """Copy an acquired slot into the pool; False when it was too old."""
        return self.pool.stage(slot, self.version)

    def sample(self) -> None:
        """Make the batch of this iteration."""
        self._batch = self.pool.batch(self.version)

    def learn(self) -> tuple[dict[str, float], int]:
        """Run the update on the sampled batch.

        Returns:
            Figures by canonical tag, and how many optimiser steps have been refused as non-finite
            since the start. Reading them is the only wait for the device.
        """
        batch, cfg = self._batch, self.cfg
        assert batch is not None, "learn before sample"
        self._batch = None
        if cfg.schedule == "linear":
            left = max(1.0 - self.version / cfg.max_iterations, 0.0)
            self.state.lr.fill_(cfg.learning_rate * left)
        metrics = appo.update(self.state, batch, cfg)
        size = batch.reward.numel() // cfg.num_mini_batches
        self._rows = size * cfg.num_mini_batches * cfg.num_learning_epochs
        *values, skipped = torch.stack([*metrics.values(), self.state.skipped_steps]).tolist()
        return dict(zip(metrics, values, strict=True)), int(skipped)

    def pack(self, values: np.ndarray) -> None:
        """Flatten the policy, normaliser included, into values[P]."""
        pack_policy(self.state.policy, values)

    def acting(self) -> tuple[GaussianPolicy, None]:
        """The policy, which has its own normaliser, for `policy.pt`."""
        return self.state.policy, None

    def state_dict(self) -> dict[str, Any]:
        """Everything but the staged rollouts."""
        return {
            "appo": self.state.state_dict(),
            "reward_scaler": None if self._scaler is None else self._scaler.state_dict(),
            "torch_rng": torch.get_rng_state(),
        }

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; the pool starts empty."""
        self.state.load_state_dict(values["appo"])
        if self._scaler is not None:
            self._scaler.load_state_dict(values["reward_scaler"])
        torch.set_rng_state(values["torch_rng"])
