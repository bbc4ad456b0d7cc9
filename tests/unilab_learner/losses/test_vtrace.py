"""V-trace by hand, and against GAE where both must agree."""

import math

import pytest
import torch

from unilab_learner.losses.gae import gae
from unilab_learner.losses.vtrace import vtrace


def column(*numbers):
    return torch.tensor(numbers, dtype=torch.float64).unsqueeze(1)


def random_rollout(steps=7, envs=5, seed=0):
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    terminated = (normal(steps, envs) > 1.0).double()
    truncated = (normal(steps, envs) > 1.0).double() * (1.0 - terminated)
    values = normal(steps + 1, envs)
    reached = torch.where(truncated > 0, normal(steps, envs), values[1:])
    return {
        "reward": normal(steps, envs),
        "values": values[:-1],
        "next_values": reached,
        "terminated": terminated,
        "done": terminated + truncated,
    }


def test_two_steps_off_policy_by_hand():
    # gamma .5, lam 1, ratios 2 and .5, both limits 1: rho = c = (1, .5).
    # delta_1 = .5 (2 + .5*4 - 3) = .5;  delta_0 = 1 (1 + .5*3 - 2) = .5
    # vs_1 = 3 + .5 = 3.5;  vs_0 = 2 + .5 + .5*1*.5 = 2.75
    # A_0 = 1 (1 + .5*3.5 - 2) = .75;  A_1 = .5 (2 + .5*4 - 3) = .5
    got = vtrace(
        column(math.log(2.0), math.log(0.5)),
        column(1, 2),
        column(2, 3),
        column(3, 4),
        column(0, 0),
        column(0, 0),
        gamma=0.5,
        lam=1.0,
    )
    assert got.vs.flatten().tolist() == pytest.approx([2.75, 3.5])
    assert got.advantages.flatten().tolist() == pytest.approx([0.75, 0.5])
    assert got.rho.flatten().tolist() == pytest.approx([2.0, 0.5])


def test_rho_decides_the_error_and_c_how_far_it_travels():
    # As above with limits rho 2 and c .25: rho = (2, .5), c = (.25, .25).
    # delta_0 = 2*.5 = 1, delta_1 = .5;  vs_0 = 2 + 1 + .5*.25*.5 = 3.0625
    got = vtrace(
        column(math.log(2.0), math.log(0.5)),
        column(1, 2),
        column(2, 3),
        column(3, 4),
        column(0, 0),
        column(0, 0),
        gamma=0.5,
        lam=1.0,
        clip_rho=2.0,
        clip_c=0.25,
    )
    assert got.vs.flatten().tolist() == pytest.approx([3.0625, 3.5])


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
def test_on_policy_the_targets_are_the_returns_of_gae(lam):
    """Lambda is really used: another lambda gives other numbers."""
    rollout = random_rollout()
    got = vtrace(torch.zeros(7, 5, dtype=torch.float64), **rollout, gamma=0.9, lam=lam)
    advantages, returns = gae(**rollout, gamma=0.9, lam=lam)
    torch.testing.assert_close(got.vs, returns)
    mixed = vtrace(
        torch.zeros(7, 5, dtype=torch.float64), **rollout, gamma=0.9, lam=lam, advantage="mixed"
    )
    torch.testing.assert_close(mixed.advantages, advantages)


def test_lambda_is_not_ignored():
    rollout = random_rollout()
    zeros = torch.zeros(7, 5, dtype=torch.float64)
    low = vtrace(zeros, **rollout, gamma=0.9, lam=0.5).vs
    high = vtrace(zeros, **rollout, gamma=0.9, lam=1.0).vs
    assert (low - high).abs().max() > 0.1


def test_advantages_follow_the_papers_equation_step_by_step():
    rollout = random_rollout(seed=3)
    log_ratio = 0.4 * torch.randn(7, 5, generator=torch.Generator().manual_seed(4)).double()
    got = vtrace(log_ratio, **rollout, gamma=0.9, lam=0.8)
    for t in range(7):
        for n in range(5):
            last_or_done = t == 6 or rollout["done"][t, n] > 0
            reached = rollout["next_values"][t, n] if last_or_done else got.vs[t + 1, n]
            alive = 1.0 - rollout["terminated"][t, n]
            error = rollout["reward"][t, n] + 0.9 * alive * reached - rollout["values"][t, n]
            expected = min(1.0, math.exp(log_ratio[t, n])) * error
            assert got.advantages[t, n].item() == pytest.approx(expected.item())


def test_a_row_that_terminated_gets_no_bootstrap_even_where_a_final_value_is_there():
    got = vtrace(
        column(0.0), column(1.0), column(2.0), column(50.0), column(1.0), column(1.0),
        gamma=0.9, lam=1.0,
    )  # fmt: skip
    assert got.vs.item() == pytest.approx(1.0)
    assert got.advantages.item() == pytest.approx(-1.0)
