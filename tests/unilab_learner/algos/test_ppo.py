"""PPO through rsl-rl-lib: what we add to it, and what we rely on it for."""

import copy
import subprocess
import sys

import pytest
import torch
from ppo_rig import C, E, O, T, build, collect, config

from unilab_learner.algos.ppo import (
    add_final_values,
    export_policy,
    observations,
    replace_rows,
)
from unilab_learner.algos.side_by_side_ppo import set_learning_rate


def test_a_truncated_row_is_worth_its_reward_and_the_value_of_its_final_observation():
    algorithm = build(config())
    collect(algorithm, truncated=[(2, 4)], final=0.3)
    final = observations(torch.zeros(1, O), torch.full((1, C), 0.3))
    with torch.no_grad():
        expected = 1.0 + 0.9 * algorithm.critic(final).item()
    assert algorithm.storage.returns[2, 4].item() == pytest.approx(expected, abs=1e-5)


def test_a_terminated_row_is_worth_its_reward_alone():
    algorithm = build(config())
    collect(algorithm, terminated=[(2, 4)])
    assert algorithm.storage.returns[2, 4].item() == pytest.approx(1.0, abs=1e-5)


def test_rewards_without_truncation_are_left_alone():
    algorithm = build(config())
    rewards = torch.arange(6.0)
    got = add_final_values(algorithm, rewards, torch.zeros(0, dtype=torch.long), torch.zeros(0, C))
    assert torch.equal(got, rewards)


def test_constant_reward_cut_by_time_is_learned_as_one_over_one_minus_gamma():
    """Reward 1 for ever, cut every T steps: V -> 10 at gamma .9, not (1 - .9^5) / .1 = 4.1."""
    cfg = config(
        obs_normalization=False, schedule="fixed", learning_rate=1e-2, num_mini_batches=1,
        num_learning_epochs=4, use_clipped_value_loss=False, entropy_coef=0.0,
    )  # fmt: skip
    algorithm = build(cfg)
    for _ in range(250):
        collect(algorithm, truncated=[(T - 1, env) for env in range(E)], constant=True)
        algorithm.update()
    value = algorithm.critic(observations(torch.ones(1, O), torch.ones(1, C)))
    assert value.item() == pytest.approx(10.0, rel=0.05)


def test_the_normaliser_is_frozen_in_an_iteration_and_learns_the_rollout_after_the_epochs():
    algorithm = build(config())
    normalizer = algorithm.actor.obs_normalizer
    collect(algorithm)
    assert normalizer.count.item() == 0
    rows = algorithm.storage.observations["policy"].flatten(0, 1).clone()
    algorithm.update()
    assert normalizer.count.item() == T * E
    torch.testing.assert_close(normalizer.mean, rows.mean(0))


@pytest.mark.parametrize("preset", ["default", "gym"])
def test_the_exported_policy_acts_as_the_librarys_actor(preset):
    cfg = config(preset=preset)
    algorithm = build(cfg)
    for _ in range(2):
        collect(algorithm)
        algorithm.update()
    obs = 3.0 * torch.randn(9, O)
    with torch.no_grad():
        expected = algorithm.actor(observations(obs, torch.zeros(9, C)))
    policy = export_policy(algorithm, cfg)
    torch.testing.assert_close(policy.act(obs), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(policy(obs)[1], algorithm.actor.distribution.log_std_param.exp())


def test_saved_state_continues_bit_for_bit():
    one, other = build(config()), build(config(), seed=9)
    collect(one)
    one.update()
    saved = copy.deepcopy(one.save())
    other.load(saved, None, strict=True)
    assert other.learning_rate == one.learning_rate
    for algorithm in (one, other):
        torch.manual_seed(5)
        collect(algorithm)
        algorithm.update()
    for left, right in zip(one.actor.parameters(), other.actor.parameters(), strict=True):
        assert torch.equal(left, right)


def test_the_gym_preset_clips_observations_and_starts_nearly_without_preference():
    algorithm = build(config(preset="gym", activation="tanh"))
    assert algorithm.actor.obs_normalizer(torch.full((1, O), 1e6)).tolist() == [[10.0] * O]
    assert algorithm.actor(observations(torch.randn(9, O), torch.zeros(9, C))).abs().max() < 0.05
    assert algorithm.normalize_advantage_per_mini_batch
    set_learning_rate(algorithm, 2e-4)
    assert {group["lr"] for group in algorithm.optimizer.param_groups} == {2e-4}
    assert {group["eps"] for group in algorithm.optimizer.param_groups} == {1e-5}


def test_importing_the_library_touches_neither_git_nor_its_runner():
    code = (
        "import sys, unilab_learner.algos.ppo\n"
        "print(sorted({'git', 'wandb', 'onnx', 'rsl_rl.runners'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "[]", done.stderr


def test_dropped_rows_become_copies_of_good_ones_in_every_column():
    algorithm = build(config())
    collect(algorithm)
    storage = algorithm.storage
    replace_rows(storage, [(1, torch.tensor([2, 3])), (T - 1, torch.tensor([E - 1]))])
    for column in (storage.actions, storage.returns, storage.advantages, storage.values,
                   storage.actions_log_prob, *storage.observations.values()):  # fmt: skip
        assert torch.equal(column[1, 2], column[1, 4])
        assert torch.equal(column[1, 3], column[1, 4])
        assert torch.equal(column[T - 1, E - 1], column[0, 0])  # round to the first
        assert not torch.equal(column[1, 4], column[1, 5])
