"""FlashSAC's networks: log-probabilities, bounds, independence of the critics, the file."""

import math

import numpy as np
import pytest
import torch

from unilab_core.nets.policy_file import load_policy, save_policy
from unilab_core.nets.unit_networks import UnitActor, UnitActorSpec, UnitCritics

CONTRACT = {
    "task": "t", "sim": "s", "algo": "flashsac", "obs_width": 3, "action_width": 2,
    "obs_terms": [["a", 3]], "env": {}, "iteration": 1,
}  # fmt: skip


def make_actor(low=(-2.0, 0.0), high=(2.0, 1.0)):
    torch.manual_seed(0)
    spec = UnitActorSpec(
        obs_width=3, hidden_dim=8, num_blocks=1, expansion=2, action_low=low, action_high=high
    )
    return UnitActor(spec)


def test_actions_stay_inside_the_bounds_and_reach_both_halves():
    actor = make_actor()
    action, _ = actor.sample(torch.randn(500, 3) * 5)
    assert action[:, 0].min() >= -2.0
    assert action[:, 0].max() <= 2.0
    assert action[:, 1].min() >= 0.0
    assert action[:, 1].max() <= 1.0


def test_the_log_probability_is_that_of_the_unscaled_action():
    actor = make_actor()
    obs = torch.randn(6, 3)
    action, log_prob = actor.sample(obs, torch.Generator().manual_seed(3))
    mean, log_std = actor(obs)
    unit = (action - actor.bias) / actor.scale
    pre_tanh = torch.atanh(unit)
    gaussian = torch.distributions.Normal(mean, log_std.exp()).log_prob(pre_tanh)
    expected = (gaussian - torch.log1p(-unit.square())).sum(-1)
    assert log_prob.tolist() == pytest.approx(expected.tolist(), abs=2e-3)


def test_the_spread_lies_between_its_limits():
    actor = make_actor()
    with torch.no_grad():
        actor.head_bias[:, 2] = 100.0
        actor.head_bias[:, 3] = -100.0
    _, log_std = actor(torch.randn(4, 3))
    assert log_std[:, 0].tolist() == pytest.approx([2.0] * 4)
    assert log_std[:, 1].tolist() == pytest.approx([-10.0] * 4)


def test_given_noise_gives_the_action_by_hand():
    actor = make_actor()
    obs, noise = torch.randn(4, 3), torch.randn(4, 2)
    mean, log_std = actor(obs)
    expected = torch.tanh(mean + log_std.exp() * noise) * actor.scale + actor.bias
    assert torch.allclose(actor.explore(obs, noise), expected)
    assert torch.allclose(actor.act(obs), torch.tanh(mean) * actor.scale + actor.bias)


def test_the_critics_are_independent():
    torch.manual_seed(0)
    critics = UnitCritics(4, 2, 8, num_atoms=5, num_blocks=1, expansion=2)
    obs, action = torch.randn(7, 4), torch.randn(7, 2)
    before = critics(obs, action, batch_stats=True).clone()
    assert before.shape == (2, 7, 5)
    assert not torch.allclose(before[0], before[1])
    with torch.no_grad():
        for param in critics.parameters():
            param[0].add_(0.3)
    after = critics(obs, action, batch_stats=True)
    assert not torch.allclose(after[0], before[0])
    assert torch.allclose(after[1], before[1])


def test_a_policy_file_holds_the_statistics_as_well(tmp_path):
    actor = make_actor()
    obs = torch.randn(64, 3) * 4 + 1
    for _ in range(20):
        actor.sample(obs, batch_stats=True)
    save_policy(tmp_path / "policy.pt", actor, None, CONTRACT)
    policy = load_policy(tmp_path / "policy.pt")
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    with torch.no_grad():
        expected = actor.act(torch.from_numpy(rows)).numpy()
    assert np.array_equal(policy.act(rows), expected)


def test_bad_bounds_name_what_is_wrong():
    with pytest.raises(ValueError, match="every high above its low"):
        make_actor(low=(1.0,), high=(math.nextafter(1.0, 0.0),))
    with pytest.raises(ValueError, match="2 low and 1 high"):
        make_actor(low=(0.0, 0.0), high=(1.0,))
