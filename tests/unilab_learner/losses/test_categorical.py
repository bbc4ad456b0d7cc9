"""C51 projection and loss, by hand."""

import math

import pytest
import torch

from unilab_learner.losses.categorical import (
    LOG_PROB_FLOOR,
    cross_entropy,
    expected_value,
    make_support,
    project,
)


def test_projection_of_a_hand_computed_distribution():
    # Support 0, 1, 2. Mass .5 at 0.25 -> .375 on 0 and .125 on 1; mass .5 at 1.5 -> .25 on 1
    # and .25 on 2.
    got = project(torch.tensor([[[0.5, 0.5, 0.0]]]), torch.tensor([[0.25, 1.5, 1.0]]), 0.0, 2.0)
    assert got[0, 0].tolist() == pytest.approx([0.375, 0.375, 0.25])


def test_a_shift_keeps_mass_and_moves_the_mean_by_exactly_the_shift():
    support = make_support(-5.0, 5.0, 41)
    probs = torch.zeros(2, 3, 41)
    probs[..., 15:25] = torch.rand(2, 3, 10)
    probs /= probs.sum(-1, keepdim=True)
    # z' = r + gamma (z - alpha log pi): the entropy term shifts the atoms before discounting.
    reward, gamma, bonus = 0.33, 0.97, 0.08
    atoms = (reward + gamma * (support + bonus)).expand(3, 41)
    got = project(probs, atoms, -5.0, 5.0)
    assert got.sum(-1).flatten().tolist() == pytest.approx([1.0] * 6)
    expected = reward + gamma * (probs @ support + bonus)
    assert (got @ support).flatten().tolist() == pytest.approx(
        expected.flatten().tolist(), abs=1e-5
    )


def test_mass_outside_the_support_ends_up_on_its_ends():
    atoms = torch.tensor([[-7.0, 0.5, 99.0]])
    got = project(torch.tensor([[[0.2, 0.3, 0.5]]]), atoms, 0.0, 2.0)
    assert got[0, 0].tolist() == pytest.approx([0.35, 0.15, 0.5])


def test_an_atom_on_the_support_stays_whole():
    got = project(torch.eye(5).unsqueeze(1), make_support(-1, 1, 5).expand(1, 5), -1.0, 1.0)
    assert torch.allclose(got[:, 0], torch.eye(5), atol=1e-6)


def test_cross_entropy_is_the_sum_over_critics_of_batch_means():
    target = torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]])
    logits = torch.tensor([[[0.0, 0.0]], [[math.log(3.0), 0.0]]])
    # Critic 1: log 2. Critic 2: -(.5 log .75 + .5 log .25).
    expected = math.log(2) - 0.5 * (math.log(0.75) + math.log(0.25))
    assert cross_entropy(target, logits).item() == pytest.approx(expected)


def test_a_vanishing_probability_costs_no_more_than_the_floor():
    loss = cross_entropy(torch.tensor([[[0.0, 1.0]]]), torch.tensor([[[500.0, 0.0]]]))
    assert loss.item() == pytest.approx(-LOG_PROB_FLOOR)


def test_expected_value_of_equal_logits_is_the_middle_of_the_support():
    assert expected_value(torch.zeros(1, 7), make_support(2.0, 8.0, 7)).item() == pytest.approx(5.0)
