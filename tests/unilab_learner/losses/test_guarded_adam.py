"""Optimiser steps over a flat network that refuse non-finite numbers."""

import copy

import pytest
import torch
from torch import nn

from unilab_learner.losses.guarded_adam import GuardedAdam, flatten_parameters


def make(params=None, **changes):
    param = nn.Parameter(torch.tensor([1.0, 2.0]))
    settings = {"lr": 0.1, "betas": (0.9, 0.999), "weight_decay": 0.01} | changes
    return param, GuardedAdam(params or [param], **settings)


def moments(optimizer):
    return optimizer.state_dict()


def test_a_finite_step_is_that_of_adam_and_reports_the_norm():
    param, optimizer = make()
    norm, refused = optimizer.step((param * torch.tensor([3.0, 4.0])).sum())
    assert norm.item() == pytest.approx(5.0)
    assert refused.item() == 0.0
    # First Adam step: decay by lr * weight_decay, then lr in each coordinate.
    assert param.tolist() == pytest.approx([0.999 - 0.1, 1.998 - 0.1], abs=1e-5)


def test_a_flat_network_learns_exactly_like_one_with_an_optimiser_per_layer():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1))
    flat = copy.deepcopy(plain)
    reference = torch.optim.AdamW(
        plain.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    optimizer = GuardedAdam(list(flat.parameters()), lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)
    for _ in range(5):
        rows = torch.randn(6, 3)
        reference.zero_grad()
        plain(rows).square().mean().backward()
        reference.step()
        optimizer.step(flat(rows).square().mean())
    for expected, got in zip(plain.parameters(), flat.parameters(), strict=True):
        assert torch.allclose(got, expected, atol=1e-7)


def test_loading_weights_into_a_flat_network_changes_the_flat_vector():
    network = nn.Linear(2, 1)
    flat = flatten_parameters(list(network.parameters()))
    network.load_state_dict({"weight": torch.tensor([[7.0, 8.0]]), "bias": torch.tensor([9.0])})
    assert flat.tolist() == [7.0, 8.0, 9.0]
    flat[2] = 1.0
    assert network.bias.item() == 1.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_non_finite_loss_changes_neither_weights_nor_moments(bad):
    param, optimizer = make()
    optimizer.step(param.square().sum())
    before = param.detach().clone(), copy.deepcopy(moments(optimizer))
    _, refused = optimizer.step((param * bad).sum(), max_grad_norm=1.0)
    assert refused.item() == 1.0
    assert torch.equal(param, before[0])
    for name, value in moments(optimizer).items():
        assert torch.equal(value, before[1][name])


def test_one_non_finite_gradient_entry_is_enough():
    param, optimizer = make()
    # sqrt at 0 has an infinite slope while the loss itself is finite.
    loss = ((param - param.detach()) * torch.tensor([1.0, 0.0])).abs().sqrt().sum()
    _, refused = optimizer.step(loss)
    assert refused.item() == 1.0
    assert param.tolist() == [1.0, 2.0]


def test_clipping_keeps_the_direction_and_limits_the_length():
    # With beta = 0 the first moment is the gradient that was used.
    param, optimizer = make(betas=(0.0, 0.0))
    norm, _ = optimizer.step((param * torch.tensor([30.0, 40.0])).sum(), max_grad_norm=1.0)
    assert norm.item() == pytest.approx(50.0)
    assert moments(optimizer)["exp_avg"].tolist() == pytest.approx([0.6, 0.8], rel=1e-5)


def test_only_its_own_parameters_get_gradients():
    param, optimizer = make()
    other = nn.Parameter(torch.ones(2))
    optimizer.step((param * other).sum())
    assert other.grad is None
    assert param.grad is None
