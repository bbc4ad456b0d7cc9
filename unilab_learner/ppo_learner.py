"""PPO between the loop and rsl-rl-lib: act, store, learn, state.

One iteration, in the order of the loop:

    act() and store()   T times, while the rollout is collected
    add_returns()       returns and advantages of the stored rollout
    learn()             epochs, normalisers; one look at the figures

Legend: T steps, E environments, O observation, C critic observation, A action.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from unilab_core.config.on_policy import PpoConfig
from unilab_core.config.on_policy_preset import PRESETS
from unilab_core.contracts import EnvSpec
from unilab_core.nets.gaussian import GaussianPolicy
from unilab_core.run.failures import NonFiniteError
from unilab_learner.algos.ppo import (
    add_final_values,
    build_ppo,
    export_policy,
    replace_rows,
)
from unilab_learner.algos.side_by_side_ppo import set_learning_rate
from unilab_learner.losses.reward_scaler import RewardScaler
from unilab_learner.slot_vec_env import DROPPED_ROWS, FINAL_CRITIC_OBS, TRUNCATED_ROWS


class PpoLearner:
    """Everything of one rank that learning reads or changes, on one device."""

    def __init__(
        self, cfg: PpoConfig, spec: EnvSpec, device: torch.device, *, use_amp: bool
    ) -> None:
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.device = device
        self.algorithm = build_ppo(
            cfg,
            obs_width=spec.obs_width,
            critic_obs_width=spec.critic_obs_width,
            action_width=spec.action_width,
            device=device,
            use_amp=use_amp,
        )
        preset = PRESETS[cfg.preset]
        self._scaler: RewardScaler | None = None
        if preset.scale_rewards:
            self._scaler = RewardScaler(
                spec.num_envs, gamma=cfg.gamma, limit=preset.reward_clip
            ).to(device)
        self._dropped: list[tuple[int, Tensor]] = []
        """Placeholders of the rollout being stored: step, environments."""

    @property
    def rows_per_batch(self) -> int:
        """Rows of one minibatch."""
        return self.cfg.num_envs * self.cfg.num_steps_per_env // self.cfg.num_mini_batches

    @property
    def rows_per_iteration(self) -> int:
        """Rows that one call of `learn` trains on, epochs counted."""
        return self.rows_per_batch * self.cfg.num_mini_batches * self.cfg.num_learning_epochs

    @torch.inference_mode()
    def act(self, obs: TensorDict) -> Tensor:
        """Exploring actions[E, A]; what is stored with them waits in the algorithm."""
        return self.algorithm.act(obs)

    @torch.inference_mode()
    def store(
        self, next_obs: TensorDict, reward: Tensor, dones: Tensor, extras: dict[str, Any]
    ) -> None:
        """Store what followed the oldest `act` not stored yet, as `SlotVecEnv.step` returned it."""
        if self._scaler is not None:
            reward = self._scaler.scale(reward, dones.float())
        reward = add_final_values(
            self.algorithm, reward, extras[TRUNCATED_ROWS], extras[FINAL_CRITIC_OBS]
        )
        dropped = extras[DROPPED_ROWS]
        if dropped.numel():
            # The reward that makes the advantage zero: nothing travels to the rows before.
            reward[dropped] = self.algorithm.values_of(dropped)
            self._dropped.append((self.algorithm.storage.step, dropped))
        self.algorithm.process_env_step(next_obs, reward, dones, {})

    @torch.inference_mode()
    def add_returns(self, last_obs: TensorDict) -> None:
        """Returns and advantages; `last_obs` are the observations after the last step."""
        self.algorithm.compute_returns(last_obs)
        if self._dropped:
            replace_rows(self.algorithm.storage, self._dropped)
            self._dropped = []

    def learn(self, iteration: int) -> dict[str, float]:
        """Learn from the rollout with its returns; figures by canonical tag.

        Args:
            iteration: iterations finished before this one.

        Raises:
            NonFiniteError: a loss or a weight is not finite any more.
        """
        algorithm, cfg = self.algorithm, self.cfg
        if cfg.schedule == "linear":
            set_learning_rate(algorithm, cfg.learning_rate * (1.0 - iteration / cfg.max_iterations))
        losses = algorithm.update()
        for name, figure in losses.items():
            if not math.isfinite(figure):
                raise NonFiniteError(source=f"loss ({name})", step=iteration)
        self._require_finite_weights(iteration)
        return {
            "Loss/value": losses["value"],
            "Loss/surrogate": losses["surrogate"],
            "Loss/entropy": losses["entropy"],
            "Loss/learning_rate": algorithm.learning_rate,
            "Policy/mean_std": algorithm.mean_std().item(),
        }

    def acting(self) -> tuple[GaussianPolicy, None]:
        """The policy, which has its own normaliser, for `policy.pt`."""
        return export_policy(self.algorithm, self.cfg), None

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes what happens next."""
        return {
            "ppo": self.algorithm.save(),
            "reward_scaler": None if self._scaler is None else self._scaler.state_dict(),
            "torch_rng": torch.get_rng_state(),
        }

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.algorithm.load(dict(values["ppo"]), None, strict=True)
        if self._scaler is not None:
            self._scaler.load_state_dict(values["reward_scaler"])
        torch.set_rng_state(values["torch_rng"])

    def _require_finite_weights(self, iteration: int) -> None:
        # One reduction on the device: a norm is finite only if every weight is.
        params = [*self.algorithm.actor.parameters(), *self.algorithm.critic.parameters()]
        norm = torch.nn.utils.get_total_norm([param.detach() for param in params])
        if not bool(torch.isfinite(norm)):
            raise NonFiniteError(source="weights", step=iteration)
