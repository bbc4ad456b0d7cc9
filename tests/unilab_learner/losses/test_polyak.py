"""Target networks."""

import pytest
import torch
from torch import nn

from unilab_learner.losses.polyak import polyak_update


def test_the_target_moves_the_given_fraction():
    target, online = nn.Linear(1, 1), nn.Linear(1, 1)
    nn.init.constant_(target.weight, 1.0)
    nn.init.constant_(online.weight, 3.0)
    polyak_update(target, online, 0.25)
    assert target.weight.item() == pytest.approx(1.5)
    assert online.weight.item() == 3.0


def test_tau_one_copies():
    target, online = nn.Linear(2, 2), nn.Linear(2, 2)
    polyak_update(target, online, 1.0)
    assert torch.equal(target.weight, online.weight)
