"""Target networks."""

import pytest
import torch

from unilab_learner.losses.polyak import polyak_update


def test_the_target_moves_the_given_fraction():
    target, online = torch.tensor([1.0, 5.0]), torch.tensor([3.0, 1.0])
    polyak_update(target, online, 0.25)
    assert target.tolist() == pytest.approx([1.5, 4.0])
    assert online.tolist() == [3.0, 1.0]


def test_tau_one_copies():
    target, online = torch.zeros(3), torch.randn(3)
    polyak_update(target, online, 1.0)
    assert torch.equal(target, online)
