"""Mirrored rows by hand."""

from __future__ import annotations

import torch

from unilab_core.contracts import MirrorMap, Symmetry
from unilab_learner.replay.buffer import ReplayRows
from unilab_learner.replay.mirror import Mirror

SWAP = MirrorMap(index=(1, 0), sign=(1.0, -1.0))
KEEP = MirrorMap(index=(0, 1, 2), sign=(1.0, 1.0, -1.0))


def test_odd_rows_are_mirrored_and_rewards_stay():
    rows = ReplayRows(
        critic_obs=torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        action=torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        obs=torch.tensor([[5.0, 6.0], [7.0, 8.0]]),
        reward=torch.tensor([1.0, 2.0]),
        discount=torch.tensor([0.9, 0.0]),
        next_critic_obs=torch.tensor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]),
        next_obs=torch.tensor([[0.0, 1.0], [2.0, 3.0]]),
    )
    mirror = Mirror(Symmetry(obs=SWAP, critic_obs=KEEP, action=SWAP), torch.device("cpu"))
    rows = mirror.every_second(rows)
    assert rows.obs.tolist() == [[5.0, 6.0], [8.0, -7.0]]
    assert rows.next_obs.tolist() == [[0.0, 1.0], [3.0, -2.0]]
    assert rows.action.tolist() == [[1.0, 2.0], [4.0, -3.0]]
    assert rows.critic_obs.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, -6.0]]
    assert rows.next_critic_obs.tolist() == [[1.0, 1.0, 1.0], [2.0, 2.0, -2.0]]
    assert rows.reward.tolist() == [1.0, 2.0]
