"""Scaled rewards by hand."""

import math

import pytest
import torch

from unilab_learner.losses.reward_scaler import RewardScaler


def test_rewards_are_divided_by_the_spread_of_the_discounted_return():
    scaler = RewardScaler(2, gamma=0.5, limit=10.0)
    # Returns after one step: 1 and 3, variance 1.
    first = scaler.scale(torch.tensor([1.0, 3.0]), torch.tensor([0.0, 1.0]))
    assert first.tolist() == pytest.approx([1.0, 3.0], rel=1e-5)
    # Environment 0: .5*1 + 2 = 2.5; environment 1 began anew: 4. All four: mean 2.625.
    second = scaler.scale(torch.tensor([2.0, 4.0]), torch.tensor([0.0, 0.0]))
    mean = (1 + 3 + 2.5 + 4) / 4
    std = math.sqrt(sum((x - mean) ** 2 for x in (1, 3, 2.5, 4)) / 4)
    assert second.tolist() == pytest.approx([2 / std, 4 / std], rel=1e-5)


def test_scaled_rewards_are_limited():
    scaler = RewardScaler(2, gamma=0.0, limit=1.5)
    got = scaler.scale(torch.tensor([-10.0, 10.0]), torch.zeros(2))
    assert got.tolist() == pytest.approx([-1.0, 1.0], rel=1e-5)
    got = scaler.scale(torch.tensor([0.0, 90.0]), torch.zeros(2))
    assert got.tolist() == [0.0, 1.5]


def test_a_rollout_equals_its_steps():
    rewards, dones = torch.randn(6, 3), (torch.rand(6, 3) > 0.7).float()
    one, other = (RewardScaler(3, gamma=0.9, limit=10.0) for _ in range(2))
    steps = torch.stack([one.scale(rewards[t], dones[t]) for t in range(6)])
    assert torch.equal(other.scale_rollout(rewards, dones), steps)
