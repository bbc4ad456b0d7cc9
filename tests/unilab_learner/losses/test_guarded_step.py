"""Optimiser steps that refuse non-finite numbers."""

import copy

import pytest
import torch

from unilab_learner.losses.guarded_step import guarded_step


@pytest.fixture
def setup():
    param = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    return param, torch.optim.AdamW([param], lr=0.1, weight_decay=0.01, fused=True)


def test_a_finite_step_is_that_of_adam_and_reports_the_norm(setup):
    param, optimizer = setup
    norm, skipped = guarded_step(
        optimizer, [param], (param * torch.tensor([3.0, 4.0])).sum(), max_grad_norm=0.0
    )
    assert norm.item() == pytest.approx(5.0)
    assert skipped.item() == 0.0
    # First Adam step: lr in each coordinate after decay by lr * weight_decay.
    assert param.tolist() == pytest.approx([0.999 - 0.1, 1.998 - 0.1], abs=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_non_finite_loss_changes_neither_weights_nor_moments(setup, bad):
    param, optimizer = setup
    guarded_step(optimizer, [param], param.square().sum(), max_grad_norm=0.0)
    before = (param.detach().clone(), copy.deepcopy(optimizer.state_dict()["state"][0]))
    _, skipped = guarded_step(optimizer, [param], (param * bad).sum(), max_grad_norm=1.0)
    assert skipped.item() == 1.0
    assert torch.equal(param, before[0])
    for name, value in optimizer.state_dict()["state"][0].items():
        assert torch.equal(value, before[1][name])


def test_one_non_finite_gradient_entry_is_enough(setup):
    param, optimizer = setup
    # sqrt at 0 has an infinite slope while the loss itself is finite.
    loss = ((param - param.detach()) * torch.tensor([1.0, 0.0])).abs().sqrt().sum()
    _, skipped = guarded_step(optimizer, [param], loss, max_grad_norm=0.0)
    assert skipped.item() == 1.0
    assert param.tolist() == [1.0, 2.0]


def test_clipping_keeps_the_direction_and_limits_the_length(setup):
    param, _ = setup
    # With beta = 0 the first moment is the gradient that was used.
    optimizer = torch.optim.AdamW([param], lr=0.1, betas=(0.0, 0.0), fused=True)
    norm, _ = guarded_step(
        optimizer, [param], (param * torch.tensor([30.0, 40.0])).sum(), max_grad_norm=1.0
    )
    assert norm.item() == pytest.approx(50.0)
    moment = optimizer.state_dict()["state"][0]["exp_avg"]
    assert moment.tolist() == pytest.approx([0.6, 0.8], rel=1e-5)


def test_only_the_named_parameters_get_gradients(setup):
    param, optimizer = setup
    other = torch.nn.Parameter(torch.ones(2))
    guarded_step(optimizer, [param], (param * other).sum(), max_grad_norm=0.0)
    assert other.grad is None
