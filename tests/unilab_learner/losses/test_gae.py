"""Advantages by hand."""

import pytest
import torch

from unilab_learner.losses.gae import gae, next_state_values


def column(*numbers):
    return torch.tensor(numbers, dtype=torch.float64).unsqueeze(1)


def test_two_steps_by_hand():
    # gamma .5, lam .5. delta_1 = 2 + .5*4 - 3 = 1; delta_0 = 1 + .5*3 - 2 = .5.
    # A_1 = 1; A_0 = .5 + .25*1 = .75. R = A + V.
    advantages, returns = gae(
        column(1, 2), column(2, 3), column(3, 4), column(0, 0), column(0, 0), gamma=0.5, lam=0.5
    )
    assert advantages.flatten().tolist() == pytest.approx([0.75, 1.0])
    assert returns.flatten().tolist() == pytest.approx([2.75, 4.0])


def test_a_terminal_state_has_no_value_and_ends_the_recursion():
    # delta_0 = 1 - 2 = -1 whatever V' says; the later advantage 1 does not flow back.
    advantages, _ = gae(
        column(1, 2), column(2, 3), column(99, 4), column(1, 0), column(1, 0), gamma=0.5, lam=0.5
    )
    assert advantages.flatten().tolist() == pytest.approx([-1.0, 1.0])


def test_a_time_limit_bootstraps_from_its_final_state_and_ends_the_recursion():
    # V' of step 0 is the final state's 10, not the 3 of the state after the reset.
    values = column(2, 3, 4)
    reached = next_state_values(
        values, torch.tensor([0]), torch.tensor([0]), torch.tensor([10.0], dtype=torch.float64)
    )
    assert reached.flatten().tolist() == [10.0, 4.0]
    advantages, _ = gae(
        column(1, 2), values[:-1], reached, column(0, 0), column(1, 0), gamma=0.5, lam=0.5
    )
    # delta_0 = 1 + .5*10 - 2 = 4.
    assert advantages.flatten().tolist() == pytest.approx([4.0, 1.0])


def test_constant_reward_cut_every_few_steps_is_worth_one_over_one_minus_gamma():
    """The fixed point of V <- R is 1 / (1 - gamma) with time limits handled, and only then."""
    gamma, steps = 0.9, 5
    values = torch.zeros(steps + 1, 1, dtype=torch.float64)
    done = torch.zeros(steps, 1, dtype=torch.float64)
    done[2] = 1.0
    for _ in range(400):
        final = values.mean().reshape(1)
        reached = next_state_values(values, torch.tensor([2]), torch.tensor([0]), final)
        _, returns = gae(
            torch.ones(steps, 1, dtype=torch.float64),
            values[:-1],
            reached,
            torch.zeros_like(done),
            done,
            gamma=gamma,
            lam=0.95,
        )
        values[:] = returns.mean()  # a state-independent value function
    assert values.mean().item() == pytest.approx(10.0, rel=1e-3)
