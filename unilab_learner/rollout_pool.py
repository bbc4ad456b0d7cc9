"""APPO's staging pool: the newest K rollouts on the learner's device, ready to be a batch.

    slot (shared memory) --stage--> place k of [T, K, E, ...] --batch--> [T, K E, ...]

A place is overwritten in turn. When all K places are in use, `batch` is a view: the pool keeps
rollouts side by side so that nothing has to be concatenated. Each place remembers the version of
its policy; rollouts more than `max_policy_lag` versions old are left out, counted when they arrive
that late.

Legend: T steps, K places, E environments, N = E times the places in use, O observation, C critic
observation, A action.
"""

import numpy as np
import torch
from torch import Tensor

from unilab_core.config.on_policy import AppoConfig
from unilab_core.contracts import EnvSpec
from unilab_ipc.rollout_ring import RolloutSlot
from unilab_learner.algos.appo import AppoBatch
from unilab_learner.losses.reward_scaler import RewardScaler

EMPTY = -1


class RolloutPool:
    """The newest rollouts.

    Attributes:
        num_dropped: rollouts that arrived too old to be used at all.
        max_lag: largest number of versions that an arriving rollout was behind.
        newest_lag: versions that the newest arrival was behind.
    """

    def __init__(
        self, cfg: AppoConfig, spec: EnvSpec, device: torch.device, scaler: RewardScaler | None
    ) -> None:
        self._cfg = cfg
        self._device = device
        self._scaler = scaler
        steps, places, envs = cfg.steps_per_env, cfg.replay_queue_size, spec.num_envs

        def zeros(num_steps: int, *width: int) -> Tensor:
            return torch.zeros(num_steps, places, envs, *width, device=device)

        self._rows = {
            "obs": zeros(steps, spec.obs_width),
            "critic_obs": zeros(steps + 1, spec.critic_obs_width),
            "actions": zeros(steps, spec.action_width),
            "log_prob": zeros(steps),
            "reward": zeros(steps),
            "terminated": zeros(steps),
            "truncated": zeros(steps),
            "dropped": zeros(steps),
        }
        none = torch.zeros(0, dtype=torch.long, device=device)
        no_obs = torch.zeros(0, spec.critic_obs_width, device=device)
        self._finals = [(none, none, no_obs)] * places
        self._versions = [EMPTY] * places
        self._has_dropped = [False] * places
        self._newest = -1
        self._new: list[int] = []
        self.num_dropped = 0
        self.max_lag = 0
        self.newest_lag = 0

    def stage(self, slot: RolloutSlot, version: int) -> bool:
        """Copy a rollout into the next place; False when it is too old, counted.

        Args:
            slot: an acquired slot of the ring; may be released afterwards.
            version: the learner's policy version now.
        """
        lag = self.newest_lag = version - slot.policy_version
        self.max_lag = max(self.max_lag, lag)
        if lag > self._cfg.max_policy_lag:
            self.num_dropped += 1
            return False
        place = self._newest = (self._newest + 1) % len(self._versions)
        terminated = slot.terminated != 0
        # A row is one or the other; an end wins, because there is nothing to bootstrap from.
        truncated = (slot.truncated != 0) & ~terminated
        self._copy("obs", place, slot.obs[: self._cfg.steps_per_env])
        self._copy("critic_obs", place, slot.critic_obs)
        self._copy("actions", place, slot.actions)
        self._copy("log_prob", place, slot.log_prob)
        self._copy("terminated", place, terminated)
        self._copy("truncated", place, truncated)
        self._copy("dropped", place, slot.dropped)
        self._has_dropped[place] = bool(slot.dropped.any())
        self._copy("reward", place, slot.reward)
        if self._scaler is not None:
            done = torch.maximum(
                self._rows["terminated"][:, place], self._rows["truncated"][:, place]
            )
            reward = self._rows["reward"][:, place]
            reward.copy_(self._scaler.scale_rollout(reward, done))
        at_t, at_n = np.nonzero(truncated)
        self._finals[place] = (
            self._tensor(at_t),
            self._tensor(at_n),
            self._tensor(slot.final_critic_obs[at_t, at_n]),
        )
        self._versions[place] = slot.policy_version
        self._new.append(place)
        return True

    @property
    def has_new(self) -> bool:
        """Whether anything was staged since the last `batch`."""
        return bool(self._new)

    def batch(self, version: int) -> AppoBatch:
        """Every staged rollout that is not too old, as one batch; the new ones count as seen."""
        oldest = version - self._cfg.max_policy_lag
        places = [k for k, v in enumerate(self._versions) if v != EMPTY and v >= oldest]
        rows = {name: self._side_by_side(tensor, places) for name, tensor in self._rows.items()}
        if not any(self._has_dropped[place] for place in places):
            del rows["dropped"]
        envs = self._rows["reward"].shape[2]
        finals = [self._finals[place] for place in places]
        new, self._new = [place for place in self._new if place in places], []
        steps = self._cfg.steps_per_env
        return AppoBatch(
            **rows,
            final_t=torch.cat([at_t for at_t, _, _ in finals]),
            final_n=torch.cat([at_n + k * envs for k, (_, at_n, _) in enumerate(finals)]),
            final_critic_obs=torch.cat([obs for _, _, obs in finals]),
            new_obs=self._side_by_side(self._rows["obs"], new).flatten(0, 1),
            new_critic_obs=self._side_by_side(self._rows["critic_obs"][:steps], new).flatten(0, 1),
        )

    def _copy(self, name: str, place: int, values: np.ndarray) -> None:
        self._rows[name][:, place].copy_(torch.from_numpy(values))

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(values)).to(self._device)

    def _side_by_side(self, tensor: Tensor, places: list[int]) -> Tensor:
        """[T, K, E, ...] -> [T, N, ...]; a view where all places are wanted."""
        if len(places) < tensor.shape[1]:
            tensor = tensor[:, places]
        return tensor.flatten(1, 2)
