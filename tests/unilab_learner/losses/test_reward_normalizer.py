"""The reward scale by hand."""

import math

import pytest
import torch

from unilab_learner.losses.reward_normalizer import RewardNormalizer


def test_the_scale_is_the_spread_of_the_discounted_return():
    normalizer = RewardNormalizer(2, gamma=0.5, g_max=1e6)
    assert normalizer.scale.item() == 1.0
    normalizer.observe(torch.tensor([1.0, 3.0]), torch.tensor([0.0, 1.0]))
    assert normalizer.scale.item() == pytest.approx(1.0)  # returns 1 and 3
    # Environment 0: .5 * 1 + 2 = 2.5; environment 1 began anew: 4.
    normalizer.observe(torch.tensor([2.0, 4.0]), torch.tensor([0.0, 0.0]))
    mean = (1 + 3 + 2.5 + 4) / 4
    std = math.sqrt(sum((g - mean) ** 2 for g in (1, 3, 2.5, 4)) / 4)
    assert normalizer.scale.item() == pytest.approx(std)


def test_the_largest_return_counts_where_it_is_out_of_proportion():
    normalizer = RewardNormalizer(1, gamma=0.9, g_max=5.0)
    for _ in range(2000):
        normalizer.observe(torch.tensor([1.0]), torch.tensor([0.0]))
    # G approaches 10 and stays: almost no spread, so its reach decides.
    assert normalizer.scale.item() == pytest.approx(10.0 / 5.0, rel=1e-3)
    normalizer = RewardNormalizer(1, gamma=0.0, g_max=5.0)
    for reward in (0.0,) * 99 + (-100.0,):
        normalizer.observe(torch.tensor([reward]), torch.tensor([0.0]))
    assert normalizer.scale.item() == pytest.approx(100.0 / 5.0)


def test_a_constant_reward_cannot_make_the_scale_zero():
    normalizer = RewardNormalizer(3, gamma=0.9, g_max=5.0)
    normalizer.observe(torch.zeros(3), torch.zeros(3))
    assert normalizer.scale.item() == pytest.approx(1e-4)


def test_saving_keeps_the_figures_and_begins_new_episodes():
    one = RewardNormalizer(2, gamma=0.9, g_max=5.0)
    one.observe(torch.tensor([1.0, 7.0]), torch.zeros(2))
    other = RewardNormalizer(3, gamma=0.9, g_max=5.0)  # the number of environments may change
    other.load_state_dict(one.state_dict())
    assert other.scale.item() == one.scale.item()
    other.observe(torch.full((3,), 2.0), torch.zeros(3))
    returns = torch.tensor([1.0, 7.0, 2.0, 2.0, 2.0])
    expected = max(returns.std(correction=0).item(), 7.0 / 5.0)
    assert other.scale.item() == pytest.approx(expected)
