"""The Gaussian policy: densities against torch.distributions, weights through the flat form."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal
from torch.distributions import kl_divergence as torch_kl

from unilab_core.nets.gaussian import (
    GaussianPolicy,
    GaussianSpec,
    entropy,
    kl_divergence,
    log_prob,
    orthogonal_init,
    pack_policy,
    unpack_policy,
)


def spec(**changes):
    values = {
        "obs_width": 3,
        "action_width": 2,
        "hidden_dims": (5, 4),
        "activation": "elu",
        "obs_normalization": True,
        "obs_clip": 0.0,
    }
    return GaussianSpec(**(values | changes))


def flat_width(policy):
    return sum(p.numel() for p in policy.parameters()) + 2 * policy.spec.obs_width


def test_density_entropy_and_divergence_agree_with_torch():
    mean, other = torch.randn(6, 2), torch.randn(6, 2)
    std, wide, actions = torch.tensor([0.5, 1.5]), torch.tensor([1.0, 2.0]), torch.randn(6, 2)
    p, q = Independent(Normal(mean, std), 1), Independent(Normal(other, wide), 1)
    torch.testing.assert_close(log_prob(actions, mean, std), p.log_prob(actions))
    assert entropy(std).item() == pytest.approx(p.entropy()[0].item())
    torch.testing.assert_close(kl_divergence(mean, std, other, wide), torch_kl(p, q))


def test_density_of_one_action_by_hand():
    # One standard deviation off in one column: -1/2 - log(2) - log sqrt(2 pi).
    got = log_prob(torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([2.0]))
    assert got.item() == pytest.approx(-0.5 - math.log(2.0) - 0.9189385332)


def test_a_packed_policy_acts_the_same_elsewhere_normaliser_included():
    torch.manual_seed(0)
    sender, receiver = GaussianPolicy(spec(), init_std=0.3), GaussianPolicy(spec())
    sender.normalizer.update(torch.randn(50, 3) * 4 + 2)
    values = np.zeros(flat_width(sender), np.float32)
    pack_policy(sender, values)
    unpack_policy(values, receiver)
    obs = torch.randn(7, 3)
    for sent, got in zip(sender(obs), receiver(obs), strict=True):
        assert torch.equal(sent, got)


def test_a_flat_policy_of_another_size_is_refused():
    policy = GaussianPolicy(spec())
    with pytest.raises(ValueError, match="flat policy"):
        unpack_policy(np.zeros(flat_width(policy) + 1, np.float32), policy)


def test_observations_are_clipped_after_normalisation():
    policy = GaussianPolicy(spec(obs_clip=2.0))
    far, limit = torch.full((1, 3), 100.0), torch.full((1, 3), 2.0)
    assert torch.equal(policy.act(far), policy.act(limit))
    assert torch.equal(policy.scaled(far), limit)


def test_spec_survives_a_round_trip_and_refuses_unknown_keys():
    assert GaussianSpec.from_dict(spec().to_dict()) == spec()
    with pytest.raises(ValueError, match="expected"):
        GaussianSpec.from_dict(spec().to_dict() | {"extra": 1})


def test_orthogonal_weights_have_the_wanted_gains():
    policy = GaussianPolicy(spec(hidden_dims=(8, 8)))
    orthogonal_init(policy.net, 0.01)
    middle, head = policy.net[2], policy.net[4]
    torch.testing.assert_close(middle.weight @ middle.weight.T, 2.0 * torch.eye(8))
    torch.testing.assert_close(head.weight @ head.weight.T, 1e-4 * torch.eye(2))
    assert not head.bias.any()
