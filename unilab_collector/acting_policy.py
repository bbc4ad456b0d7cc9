"""APPO's own copy of the policy in the collector: newest weights, sampled actions.

The learner publishes into the policy snapshot; newest wins, nothing queues. `refresh` copies what
is newest between two rollouts, so that one rollout has exactly one behaviour policy, whose version
and normaliser version are written into its slot.

SYNC POINT pair (the other end is in the learner):
    weights: ``SnapshotWriter.publish`` -> ``SnapshotReader.try_fetch``

Legend: E environments, O observation, A action.
"""

from __future__ import annotations

import numpy as np
import torch

from unilab_core.nets.gaussian import GaussianPolicy, log_prob, unpack_policy
from unilab_ipc.policy_snapshot import SnapshotReader
from unilab_ipc.waiting import Waiter


class ActingPolicy:
    """Samples actions on the CPU.

    Attributes:
        version: of the weights in use; -1 before the first `refresh`.
        normaliser_version: of the observation statistics in use.
    """

    def __init__(
        self, policy: GaussianPolicy, reader: SnapshotReader, waiter: Waiter, seed: int
    ) -> None:
        self._policy = policy.eval().requires_grad_(False)
        self._reader = reader
        self._waiter = waiter
        self._generator = torch.Generator().manual_seed(seed)
        self._std = torch.zeros(policy.spec.action_width)
        self.version = -1
        self.normaliser_version = -1

    def refresh(self) -> None:
        """Take the newest weights; wait only for the very first ones.

        Raises:
            Closed, PeerDead: the run ends, or the learner died before it published anything.
        """
        found = self._reader.try_fetch()  # SYNC POINT: weights
        if found is None and self.version < 0:
            found = self._waiter.wait(self._reader.try_fetch, timeout_s=None, awaits="learner")
        if found is None:
            return
        unpack_policy(found.values, self._policy)
        self._std = self._policy.log_std.exp()
        self.version, self.normaliser_version = found.version, found.normaliser_version

    @torch.inference_mode()
    def act(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sample actions[E, A] for obs[E, O]; also their log-probability[E] and means[E, A]."""
        mean, std = self._policy(torch.from_numpy(obs))
        noise = torch.randn(mean.shape, generator=self._generator)
        actions = torch.addcmul(mean, std, noise)
        return actions.numpy(), log_prob(actions, mean, std).numpy(), mean.numpy()

    @property
    def std(self) -> np.ndarray:
        """[A] standard deviations in use."""
        return self._std.detach().numpy()
