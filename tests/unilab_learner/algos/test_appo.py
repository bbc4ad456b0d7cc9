"""APPO's update: contracts of the data, of the target policy and of the host."""

import copy
import threading

import pytest
import torch

from unilab_core.config.on_policy import AppoConfig
from unilab_core.nets.gaussian import log_prob
from unilab_core.telemetry.metric_schema import validate_record
from unilab_learner.algos import appo
from unilab_learner.losses.gae import gae

T, N, O, C, A = 6, 8, 3, 4, 2  # noqa: E741


def config(**changes):
    values = {
        "algo": "appo",
        "algo_log_name": "appo",
        "preset": "default",
        "seed": 1,
        "num_envs": N,
        "max_iterations": 10,
        "save_interval": 10,
        "gamma": 0.9,
        "load_run": -1,
        "checkpoint": -1,
        "resume": False,
        "num_learning_epochs": 2,
        "num_mini_batches": 4,
        "learning_rate": 1e-3,
        "schedule": "adaptive",
        "desired_kl": 0.01,
        "clip_param": 0.2,
        "entropy_coef": 0.01,
        "value_loss_coef": 1.0,
        "use_clipped_value_loss": True,
        "lam": 0.95,
        "max_grad_norm": 1.0,
        "init_std": 0.5,
        "obs_normalization": True,
        "hidden_dims": (16, 16),
        "activation": "elu",
        "steps_per_env": T,
        "tau": 1.0,
        "target_update_freq": 1,
        "vtrace_clip_rho": 1.0,
        "vtrace_clip_c": 1.0,
        "vtrace_advantage": "one_step",
        "max_policy_lag": 8,
        "ring_slots": 4,
        "replay_queue_size": 3,
    }
    return AppoConfig(**(values | changes))


def build(cfg, seed=0):
    torch.manual_seed(seed)
    return appo.build_state(
        cfg, obs_width=O, critic_obs_width=C, action_width=A, device=torch.device("cpu")
    )


def rollout(state, seed=0, **changes):
    """On-policy data of the state's own target policy; no episode ends unless changed."""
    rng = torch.Generator().manual_seed(seed)
    obs = torch.randn(T, N, O, generator=rng)
    critic_obs = torch.randn(T + 1, N, C, generator=rng)
    with torch.no_grad():
        mean, std = state.target(obs)
        actions = mean + std * torch.randn(T, N, A, generator=rng)
        behavior = log_prob(actions, mean, std)
    fields = {
        "obs": obs,
        "critic_obs": critic_obs,
        "actions": actions,
        "log_prob": behavior,
        "reward": torch.randn(T, N, generator=rng),
        "terminated": torch.zeros(T, N),
        "truncated": torch.zeros(T, N),
        "final_t": torch.zeros(0, dtype=torch.long),
        "final_n": torch.zeros(0, dtype=torch.long),
        "final_critic_obs": torch.zeros(0, C),
        "new_obs": obs.flatten(0, 1),
        "new_critic_obs": critic_obs[:-1].flatten(0, 1),
    }
    return appo.AppoBatch(**(fields | changes))


def targets_of(state, batch, cfg):
    return appo.compute_targets(state, batch, cfg, lambda tensor: tensor)


def test_on_policy_targets_are_the_returns_of_gae():
    cfg = config()
    state = build(cfg)
    batch = rollout(state)
    got = targets_of(state, batch, cfg)
    with torch.no_grad():
        values = state.value(batch.critic_obs)
    zeros = torch.zeros(T, N)
    _, returns = gae(batch.reward, values[:-1], values[1:], zeros, zeros, gamma=0.9, lam=0.95)
    torch.testing.assert_close(got.vs, returns)
    torch.testing.assert_close(got.rho, torch.ones(T, N))


def test_a_placeholder_changes_no_target_but_ends_its_chain_and_is_in_no_minibatch():
    cfg = config()
    state = build(cfg)
    whole = rollout(state)
    dropped = torch.zeros(T, N)
    dropped[2, 1] = 1.0
    cut = dropped.clone()
    batch = rollout(
        state, truncated=cut, dropped=dropped, final_t=torch.tensor([2]),
        final_n=torch.tensor([1]), final_critic_obs=whole.critic_obs[2, 1:2],
    )  # fmt: skip
    got = targets_of(state, batch, cfg)
    with torch.no_grad():
        values = state.value(batch.critic_obs)
    assert got.vs[2, 1].item() == pytest.approx(values[2, 1].item(), abs=1e-6)
    # The row before bootstraps from the state that the placeholder stands in.
    expected = batch.reward[1, 1] + cfg.gamma * values[2, 1]
    assert got.vs[1, 1].item() == pytest.approx(expected.item(), abs=1e-5)
    rows = appo._flat_rows(state, batch, got)
    assert rows["advantages"].shape == (T * N - 1,)
    assert appo._flat_rows(state, whole, targets_of(state, whole, cfg))["vs"].shape == (T * N,)


def test_the_observation_after_the_last_step_is_what_bootstraps():
    """Defect (a): a bootstrap from an observation that nobody wrote."""
    cfg = config()
    state = build(cfg)
    batch = rollout(state)
    marked = batch.critic_obs.clone()
    marked[T] = 7.0  # the sentinel
    before, after = (
        targets_of(state, batch, cfg),
        targets_of(state, rollout(state, critic_obs=marked), cfg),
    )
    with torch.no_grad():
        change = state.value(marked[T]) - state.value(batch.critic_obs[T])
    torch.testing.assert_close(after.vs[T - 1] - before.vs[T - 1], 0.9 * change)


def test_a_row_both_terminated_and_truncated_never_reaches_the_bootstrap():
    """Defect (c): the time-out mask wins over the end. The batch says terminated alone."""
    cfg = config()
    state = build(cfg)
    ended = torch.zeros(T, N)
    ended[2, 5] = 1.0
    got = targets_of(state, rollout(state, terminated=ended), cfg)
    assert got.vs[2, 5].item() == pytest.approx(rollout(state).reward[2, 5].item(), abs=1e-6)


def test_a_truncated_row_bootstraps_from_its_final_observation():
    cfg = config(lam=1.0)
    state = build(cfg)
    cut = torch.zeros(T, N)
    cut[2, 5] = 1.0
    final = torch.full((1, C), 0.3)
    batch = rollout(
        state, truncated=cut, final_t=torch.tensor([2]), final_n=torch.tensor([5]),
        final_critic_obs=final,
    )  # fmt: skip
    got = targets_of(state, batch, cfg)
    with torch.no_grad():
        expected = batch.reward[2, 5] + 0.9 * state.value(final)[0]
    assert got.vs[2, 5].item() == pytest.approx(expected.item(), abs=1e-5)


def test_lambda_changes_the_targets():
    """Defect (e): a lambda that is configured and never used."""
    state = build(config())
    batch = rollout(state)
    low, high = targets_of(state, batch, config(lam=0.5)), targets_of(state, batch, config(lam=1.0))
    assert (low.vs - high.vs).abs().max() > 1e-3


def test_the_first_minibatch_of_fresh_data_has_ratio_one_although_the_normaliser_learns():
    cfg = config(num_learning_epochs=1, num_mini_batches=1, schedule="fixed")
    state = build(cfg)
    for seed in range(3):  # the normaliser moves after each iteration, together with the target
        metrics = appo.update(state, rollout(state, seed), cfg)
        assert metrics["Train/approx_kl"].item() == pytest.approx(0.0, abs=1e-6)
        assert metrics["Train/behavior_to_current_log_prob_delta"].item() == pytest.approx(
            0.0, abs=1e-5
        )
    assert state.policy.normalizer.count.item() == 3 * T * N


def test_the_target_follows_the_online_policy_with_its_normaliser():
    cfg = config()
    state = build(cfg)
    before = copy.deepcopy(state.target)
    appo.update(state, rollout(state), cfg)
    obs = torch.randn(4, O)
    assert torch.equal(state.target.act(obs), state.policy.act(obs))
    assert not torch.equal(state.target.act(obs), before.act(obs))


def test_the_target_waits_for_its_turn():
    cfg = config(target_update_freq=2)
    state = build(cfg)
    before = copy.deepcopy(state.target)
    obs = torch.randn(4, O)
    appo.update(state, rollout(state), cfg)
    assert torch.equal(state.target.act(obs), before.act(obs))
    appo.update(state, rollout(state, 1), cfg)
    assert torch.equal(state.target.act(obs), state.policy.act(obs))


def test_stale_rows_push_less_the_more_likely_the_target_makes_them():
    """The denominator is the larger of mu and target: min(1, mu/target) * theta/mu."""
    state = build(config())
    batch = rollout(state)
    target = targets_of(state, batch, config()).log_prob
    stale = target - 1.0  # mu was e times less likely than the target
    current = target.clone()
    ratio = (current - torch.maximum(stale, target)).exp()
    impact = torch.minimum(torch.ones_like(ratio), (stale - target).exp()) * (current - stale).exp()
    torch.testing.assert_close(ratio, impact)


def test_surrogate_and_value_losses_by_hand():
    # A 1, ratio 1.5 is limited to 1.2; A -1, ratio 1.5 is not: -(1.2)/2 + 1.5/2.
    got = appo.surrogate_loss(torch.tensor([1.5, 1.5]), torch.tensor([1.0, -1.0]), 0.2)
    assert got.item() == pytest.approx((-1.2 + 1.5) / 2)
    # V 2, old 1, target 2.5: plain .25, limited value 1.2 gives 1.69, the larger counts.
    arguments = (torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([2.5]))
    assert appo.value_loss(*arguments, 0.2).item() == pytest.approx(1.69)
    assert appo.value_loss(*arguments, None).item() == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("kl", "expected"),
    [(0.0, 1e-3), (0.001, 1.1e-3), (0.01, 1e-3), (0.02, 1e-3 / 1.1), (float("nan"), 1e-3)],
)
def test_learning_rate_follows_the_divergence(kl, expected):
    got = appo.adapted_lr(torch.tensor(1e-3), torch.tensor(kl), 0.01)
    assert got.item() == pytest.approx(expected)


def test_learning_rate_stays_within_its_limits():
    high = appo.adapted_lr(torch.tensor(1e-2), torch.tensor(1e-4), 0.01)
    low = appo.adapted_lr(torch.tensor(1e-5), torch.tensor(1.0), 0.01)
    assert (high.item(), low.item()) == (pytest.approx(1e-2), pytest.approx(1e-5))


def test_nothing_in_an_update_waits_for_the_device(monkeypatch):
    cfg = config()
    state = build(cfg)
    batch = rollout(state)

    def refuse(*_):
        raise AssertionError("a tensor was read on the host")

    for name in ("item", "tolist", "__bool__", "__float__", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    appo.update(state, batch, cfg)


def test_metrics_are_declared_finite_and_not_those_of_the_logger():
    cfg = config()
    state = build(cfg)
    metrics = {
        tag: figure.item() for tag, figure in appo.update(state, rollout(state), cfg).items()
    }
    validate_record("appo", metrics)
    assert all(abs(figure) < 1e6 for figure in metrics.values())


def test_saved_state_continues_bit_for_bit():
    cfg = config()
    state, other = build(cfg), build(cfg, seed=9)
    batches = [rollout(state, seed) for seed in range(3)]
    appo.update(state, batches[0], cfg)
    other.load_state_dict(copy.deepcopy(state.state_dict()))
    assert other.lr.item() == state.lr.item()
    for batch in batches[1:]:
        appo.update(state, batch, cfg)
        appo.update(other, batch, cfg)
    for one, two in zip(state.policy.parameters(), other.policy.parameters(), strict=True):
        assert torch.equal(one, two)
    assert other.lr.item() == state.lr.item()
    assert other.num_updates == state.num_updates == 3


def test_a_batch_that_is_not_finite_never_reaches_the_weights():
    cfg = config()
    state = build(cfg)
    batch = rollout(state, new_obs=torch.zeros(1, O), new_critic_obs=torch.zeros(1, C))
    batch.reward[0, 0] = float("nan")
    before = [p.detach().clone() for p in state.policy.parameters()]
    appo.update(state, batch, cfg)
    for one, two in zip(before, state.policy.parameters(), strict=True):
        assert torch.equal(one, two)
    assert state.skipped_steps.item() == cfg.num_learning_epochs * cfg.num_mini_batches


def test_constant_reward_cut_by_time_is_learned_as_one_over_one_minus_gamma():
    """Reward 1 for ever, cut every T steps: V -> 10 at gamma .9, not (1 - .9^6) / .1 = 4.7."""
    cfg = config(
        obs_normalization=False, schedule="fixed", learning_rate=1e-2, num_mini_batches=1,
        num_learning_epochs=4, use_clipped_value_loss=False, entropy_coef=0.0,
    )  # fmt: skip
    state = build(cfg)
    cut = torch.zeros(T, N)
    cut[T - 1] = 1.0
    shape = {"reward": torch.ones(T, N), "critic_obs": torch.ones(T + 1, N, C), "truncated": cut}
    finals = {
        "final_t": torch.full((N,), T - 1),
        "final_n": torch.arange(N),
        "final_critic_obs": torch.ones(N, C),
    }
    for seed in range(250):
        appo.update(state, rollout(state, seed, **shape, **finals), cfg)
    assert state.value(torch.ones(1, C)).item() == pytest.approx(10.0, rel=0.05)


def test_two_ranks_with_half_the_rows_each_learn_what_one_rank_learns():
    """Defect (f): gradients, advantage moments and KL are means over ranks."""
    cfg = config(num_learning_epochs=1, num_mini_batches=1, obs_normalization=False)
    whole = build(cfg)
    batch = rollout(whole)
    appo.update(whole, batch, cfg)
    ranks = [build(cfg), build(cfg)]
    barrier, shared = threading.Barrier(2), [None, None]

    def mean_over_ranks(rank):
        def all_mean(tensor):
            shared[rank] = tensor
            barrier.wait()
            mean = (shared[0] + shared[1]) / 2
            barrier.wait()
            return mean

        return all_mean

    def run(rank):
        half = slice(rank * N // 2, (rank + 1) * N // 2)
        part = appo.AppoBatch(
            obs=batch.obs[:, half], critic_obs=batch.critic_obs[:, half],
            actions=batch.actions[:, half], log_prob=batch.log_prob[:, half],
            reward=batch.reward[:, half], terminated=batch.terminated[:, half],
            truncated=batch.truncated[:, half], final_t=batch.final_t, final_n=batch.final_n,
            final_critic_obs=batch.final_critic_obs, new_obs=batch.new_obs,
            new_critic_obs=batch.new_critic_obs,
        )  # fmt: skip
        appo.update(ranks[rank], part, cfg, mean_over_ranks(rank))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, left, right in zip(
        whole.policy.parameters(), ranks[0].policy.parameters(), ranks[1].policy.parameters(),
        strict=True,
    ):  # fmt: skip
        assert torch.equal(left, right)
        torch.testing.assert_close(one, left, rtol=1e-4, atol=1e-6)


def test_the_gym_preset_starts_nearly_without_preference():
    state = build(config(preset="gym", activation="tanh"))
    assert state.policy.act(torch.randn(50, O)).abs().max().item() < 0.05
    assert state.optimizer.eps == 1e-5


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"max_policy_lag": 2}, "max_policy_lag"), ({"hidden_dims": ()}, "hidden_dims"),
     ({"num_mini_batches": 1000}, "num_mini_batches"), ({"tau": 0.0}, "tau")],
)  # fmt: skip
def test_settings_that_cannot_work_name_their_key(changes, key):
    with pytest.raises(ValueError, match=key):
        config(**changes)
