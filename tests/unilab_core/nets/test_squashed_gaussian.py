"""Tanh-Gaussian actor: densities by hand and by numerical integration."""

import math

import pytest
import torch

from unilab_core.nets.squashed_gaussian import (
    ActorSpec,
    SquashedGaussianActor,
    squashed_log_prob,
)


def make_spec(**changes):
    values = {
        "obs_width": 3,
        "hidden_dims": (8,),
        "activation": "silu",
        "layer_norm": True,
        "log_std_min": -5.0,
        "log_std_max": 0.0,
        "mean_limit": 10.0,
        "action_low": (-1.0, -2.0),
        "action_high": (1.0, 4.0),
    }
    return ActorSpec(**(values | changes))


def test_log_prob_of_a_hand_computed_point():
    # u = 0.5 + 0.5 * 1 = 1, a = 3 tanh(1):
    # log N = -1/2 - log 0.5 - log sqrt(2 pi) = -0.5 + 0.693147 - 0.918939 = -0.725791
    # log(1 - tanh(1)^2) = log(0.419974) = -0.867562; log 3 = 1.098612
    got = squashed_log_prob(
        noise=torch.tensor([[1.0]]),
        log_std=torch.tensor([[math.log(0.5)]]),
        pre_tanh=torch.tensor([[1.0]]),
        scale=torch.tensor([3.0]),
    )
    assert got.item() == pytest.approx(-0.725791 + 0.867562 - 1.098612, abs=1e-5)


def test_the_density_integrates_to_one_over_the_action_interval():
    mean, std, scale = 0.3, 0.7, 2.0
    actions = torch.linspace(-scale + 1e-4, scale - 1e-4, 200_001, dtype=torch.float64)
    pre_tanh = torch.atanh(actions / scale).unsqueeze(-1)
    log_prob = squashed_log_prob(
        (pre_tanh - mean) / std,
        torch.full_like(pre_tanh, math.log(std)),
        pre_tanh,
        torch.tensor([scale], dtype=torch.float64),
    )
    mass = torch.trapezoid(log_prob.exp(), actions)
    assert mass.item() == pytest.approx(1.0, abs=1e-3)


def test_log_prob_stays_finite_where_tanh_saturates():
    got = squashed_log_prob(
        torch.zeros(1, 1), torch.zeros(1, 1), torch.tensor([[40.0]]), torch.ones(1)
    )
    # log(1 - tanh(40)^2) = 2 (log 2 - 40): the naive form would be log(0).
    assert got.item() == pytest.approx(-0.918939 - 2 * (math.log(2) - 40.0), abs=1e-3)


def test_a_fresh_actor_is_centred_and_in_the_middle_of_its_std_range():
    actor = SquashedGaussianActor(make_spec())
    obs = torch.randn(5, 3)
    mean, log_std = actor(obs)
    assert torch.equal(mean, torch.zeros(5, 2))
    assert torch.equal(log_std, torch.full((5, 2), -2.5))
    assert torch.equal(actor.act(obs), torch.tensor([[0.0, 1.0]]).expand(5, 2))


def test_samples_stay_inside_the_bounds_and_repeat_with_the_generator():
    actor = SquashedGaussianActor(make_spec(log_std_min=1.0, log_std_max=3.0))
    obs = torch.randn(500, 3)
    first, _ = actor.sample(obs, torch.Generator().manual_seed(3))
    again, _ = actor.sample(obs, torch.Generator().manual_seed(3))
    assert torch.equal(first, again)
    low, high = torch.tensor([-1.0, -2.0]), torch.tensor([1.0, 4.0])
    assert bool(((first >= low) & (first <= high)).all())
    assert first[:, 1].max() > 3.5


def test_a_spec_survives_its_dict_and_refuses_other_keys():
    spec = make_spec()
    assert ActorSpec.from_dict(spec.to_dict()) == spec
    with pytest.raises(ValueError, match="expected"):
        ActorSpec.from_dict({**spec.to_dict(), "depth": 3})


def test_bounds_that_do_not_span_an_interval_are_refused():
    with pytest.raises(ValueError, match="above its low"):
        make_spec(action_low=(0.0, 1.0), action_high=(1.0, 1.0))
