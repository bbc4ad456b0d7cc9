"""PPO with both networks at once learns exactly what the library's own PPO learns."""

import copy

import pytest
import torch
from ppo_rig import A, E, T, build, collect, config
from rsl_rl.algorithms import PPO

from unilab_learner.algos.ppo import observations


def pair(**changes):
    """Ours, and the library's algorithm on copies of the same networks and rollout."""
    cfg = config(**changes)
    ours = build(cfg)
    collect(ours, terminated=[(1, 2)], truncated=[(3, 0)])
    actor, critic, storage = (
        copy.deepcopy(part) for part in (ours.actor, ours.critic, ours.storage)
    )
    theirs = PPO(
        actor,
        critic,
        storage,
        num_learning_epochs=cfg.num_learning_epochs,
        num_mini_batches=cfg.num_mini_batches,
        clip_param=cfg.clip_param,
        value_loss_coef=cfg.value_loss_coef,
        entropy_coef=cfg.entropy_coef,
        learning_rate=cfg.learning_rate,
        max_grad_norm=cfg.max_grad_norm,
        use_clipped_value_loss=cfg.use_clipped_value_loss,
        schedule=cfg.schedule,
        desired_kl=cfg.desired_kl,
        normalize_advantage_per_mini_batch=ours.normalize_advantage_per_mini_batch,
    )
    return ours, theirs


def updated(algorithm):
    torch.manual_seed(3)  # the order of the minibatches is drawn first
    return algorithm.update()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"preset": "gym", "activation": "tanh"},
        {"use_clipped_value_loss": False, "schedule": "fixed", "learning_rate": 1e-2},
        {"max_grad_norm": 1e-3, "value_loss_coef": 0.5, "entropy_coef": 0.1},
        {"schedule": "fixed", "learning_rate": 2e-2, "num_learning_epochs": 5},
        {"num_mini_batches": 4, "num_learning_epochs": 3, "desired_kl": 1e-6},
    ],
)
def test_an_update_is_the_librarys(changes):
    ours, theirs = pair(**changes)
    for group in theirs.optimizer.param_groups:
        group["eps"] = ours.optimizer.param_groups[0]["eps"]
    before = [tensor.clone() for tensor in ours.actor.parameters()]
    got, expected = updated(ours), updated(theirs)
    assert got == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert ours.learning_rate == pytest.approx(theirs.learning_rate)
    for left, right in zip(
        [*ours.actor.state_dict().values(), *ours.critic.state_dict().values()],
        [*theirs.actor.state_dict().values(), *theirs.critic.state_dict().values()],
        strict=True,
    ):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=2e-6)
    moved = zip(before, ours.actor.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in moved)


@torch.inference_mode()
def test_values_and_probabilities_of_a_rollout_are_the_librarys():
    algorithm = build(config())
    last = collect(algorithm, truncated=[(2, 1)])
    stored = algorithm.storage
    for step in range(T):
        obs = stored.observations[step]
        torch.testing.assert_close(stored.values[step], algorithm.critic(obs))
        algorithm.actor(obs, stochastic_output=True)
        torch.testing.assert_close(
            stored.actions_log_prob[step, :, 0],
            algorithm.actor.get_output_log_prob(stored.actions[step]),
        )
        mean, std = algorithm.actor.output_distribution_params
        torch.testing.assert_close(stored.distribution_params[0][step], mean)
        torch.testing.assert_close(stored.distribution_params[1][step], std)
    expected = stored.rewards[-1, 0, 0] + 0.9 * algorithm.critic(last)[0, 0]
    torch.testing.assert_close(stored.returns[-1, 0, 0], expected)


def test_actions_spread_as_the_policy_says():
    algorithm = build(config(init_std=0.3))
    obs = observations(torch.zeros(20_000, 3), torch.zeros(20_000, 4))
    with torch.inference_mode():
        actions = algorithm.act(obs)
    assert actions.shape == (20_000, A)
    assert actions.std(dim=0).tolist() == pytest.approx([0.3] * A, rel=0.03)


def test_values_of_some_rows_are_those_of_the_oldest_state_not_stored():
    algorithm = build(config())
    first, second = (observations(torch.randn(E, 3), torch.randn(E, 4)) for _ in range(2))
    rows = torch.tensor([4, 1])
    with torch.inference_mode():
        algorithm.act(first)
        algorithm.act(second)
        torch.testing.assert_close(algorithm.values_of(rows), algorithm.critic(first)[rows, 0])


@torch.inference_mode()
def test_a_transition_may_be_stored_after_the_next_actions_are_drawn():
    early, late = build(config()), build(config())
    for algorithm, delay in ((early, 0), (late, 1)):
        torch.manual_seed(6)
        waiting = []
        for step in range(T):
            obs = observations(torch.full((E, 3), float(step)), torch.full((E, 4), float(step)))
            algorithm.act(obs)
            waiting.append(float(step))
            if len(waiting) > delay:
                algorithm.process_env_step(
                    obs, torch.full((E,), waiting.pop(0)), torch.zeros(E), {}
                )
        for reward in waiting:
            algorithm.process_env_step(obs, torch.full((E,), reward), torch.zeros(E), {})
    for name in ("rewards", "actions", "actions_log_prob"):
        assert torch.equal(getattr(early.storage, name), getattr(late.storage, name))
    assert torch.equal(early.storage.observations["policy"], late.storage.observations["policy"])
    assert early.storage.observations["policy"][:, 0, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_second_thread_changes_no_number(monkeypatch):
    one, two = build(config()), build(config())
    assert two._second is not None
    monkeypatch.setattr(one, "_second", None)
    for algorithm in (one, two):
        torch.manual_seed(4)
        collect(algorithm)
        updated(algorithm)
    for left, right in zip(one.optimizer.param_groups, two.optimizer.param_groups, strict=True):
        assert all(map(torch.equal, left["params"], right["params"]))
    assert torch.get_num_threads() == 2


def test_small_networks_learn_in_one_thread(monkeypatch):
    monkeypatch.setattr("unilab_learner.algos.side_by_side_ppo.MIN_PRODUCTS", 1_000_000)
    assert build(config())._second is None


def test_an_infinite_ratio_reaches_the_weights_where_the_job_is_stopped():
    algorithm = build(config())
    collect(algorithm)
    with torch.inference_mode():
        algorithm.storage.actions_log_prob[0, 0] = -1e4
        algorithm.storage.advantages[0, 0] = 1.0
    updated(algorithm)
    assert not all(bool(torch.isfinite(param).all()) for param in algorithm.actor.parameters())


def test_a_transition_that_was_not_stored_is_not_learned_from_by_accident():
    algorithm = build(config())
    last = collect(algorithm)
    algorithm.act(last)
    with pytest.raises(AssertionError, match="not stored"):
        algorithm.compute_returns(last)
