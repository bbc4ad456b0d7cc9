"""SAC: targets by hand, known values, bit-equal continuation, no non-finite weights."""

import copy
import dataclasses
import math

import pytest
import torch

from unilab_core.config.algo import SacConfig
from unilab_learner.algos import sac

DEVICE = torch.device("cpu")


def make_config(**changes):
    values = {
        "algo": "sac",
        "algo_log_name": "sac",
        "preset": "fast",
        "seed": 1,
        "num_envs": 4,
        "max_iterations": 10,
        "save_interval": 10,
        "gamma": 0.9,
        "load_run": -1,
        "checkpoint": -1,
        "resume": False,
        "batch_size": 32,
        "replay_buffer_n": 16,
        "updates_per_step": 1,
        "learning_starts": 1,
        "policy_frequency": 2,
        "tau": 0.1,
        "actor_lr": 1e-3,
        "critic_lr": 1e-3,
        "replay_restart_tick": 0,
        "lr_end": 0.0,
        "lr_decay_steps": 100,
        "alpha_lr": 1e-3,
        "alpha_init": 0.1,
        "target_entropy_ratio": 0.5,
        "actor_hidden_dim": (16, 16),
        "critic_hidden_dim": (32,),
        "num_atoms": 21,
        "v_min": -2.0,
        "v_max": 12.0,
        "use_layer_norm": True,
        "activation": "silu",
        "symmetry_augmentation": False,
        "policy_ema": 0.0,
        "obs_normalization": False,
        "max_grad_norm": 0.0,
        "n_step": 1,
        "age_decay": 0.0,
    }
    return SacConfig(**(values | changes))


def make_state(cfg, seed=0):
    torch.manual_seed(seed)
    return sac.build_state(
        cfg,
        obs_width=3,
        critic_obs_width=4,
        action_low=(-1.0, -1.0),
        action_high=(1.0, 1.0),
        device=DEVICE,
    )


def make_batch(rows=32, seed=5, **changes):
    generator = torch.Generator().manual_seed(seed)
    values = {
        "obs": torch.randn(rows, 3, generator=generator),
        "critic_obs": torch.randn(rows, 4, generator=generator),
        "action": torch.rand(rows, 2, generator=generator) * 2 - 1,
        "reward": torch.randn(rows, generator=generator),
        "discount": torch.full((rows,), 0.9),
        "next_obs": torch.randn(rows, 3, generator=generator),
        "next_critic_obs": torch.randn(rows, 4, generator=generator),
    }
    return sac.SacBatch(**(values | changes))


def set_constant_value(critics, values):
    """Make critic i answer values[i] (scalar) whatever its input."""
    for member, value in zip(critics.members, values, strict=True):
        torch.nn.init.zeros_(member[-1].weight)
        torch.nn.init.constant_(member[-1].bias, value)


PRESETS = [
    pytest.param({}, id="fast-categorical"),
    pytest.param({"num_atoms": 1}, id="fast-scalar"),
    pytest.param({"preset": "classic", "num_atoms": 1, "use_layer_norm": False}, id="classic"),
    pytest.param({"preset": "classic"}, id="classic-categorical"),
]


def test_the_soft_bellman_target_of_scalar_critics_by_hand():
    for preset, expected_values in (("fast", (2.0, 5.0)), ("classic", (2.0, 2.0))):
        state = make_state(make_config(preset=preset, num_atoms=1))
        set_constant_value(state.target_critics, (2.0, 5.0))
        batch = make_batch(2, reward=torch.tensor([1.0, 1.0]), discount=torch.tensor([0.9, 0.0]))
        target, log_prob = sac.critic_target(state, batch, make_config(preset=preset, num_atoms=1))
        for critic, value in enumerate(expected_values):
            soft = 1.0 + 0.9 * (value - 0.1 * log_prob[0].item())
            assert target[critic, :, 0].tolist() == pytest.approx([soft, 1.0], rel=1e-5)


def test_the_mean_of_a_categorical_target_is_the_scalar_soft_target():
    cfg = make_config(alpha_init=0.05)
    state = make_state(cfg)
    batch = make_batch(reward=torch.full((32,), 0.5))
    target, log_prob = sac.critic_target(state, batch, cfg)
    # Fresh heads are zero: every distribution is uniform over [-2, 12], mean 5. Clamping at the
    # ends is avoided by a small discount.
    assert target.sum(-1).flatten().tolist() == pytest.approx([1.0] * 64, abs=1e-5)
    cfg_inside = batch
    cfg_inside.discount = torch.full((32,), 0.5)
    target, log_prob = sac.critic_target(state, cfg_inside, cfg)
    expected = 0.5 + 0.5 * (5.0 - 0.05 * log_prob)
    assert (target @ state.support)[0].tolist() == pytest.approx(expected.tolist(), abs=1e-4)


def test_the_minimum_of_two_distributions_is_the_whole_smaller_one():
    outputs = torch.tensor([[[0.0, 1.0], [1.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]])
    values = outputs @ torch.tensor([0.0, 1.0])
    got = sac._smaller(outputs, values)
    assert got.shape == (2, 2, 2)
    assert got[0].tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert torch.equal(got[0], got[1])


def test_the_temperature_rises_while_the_entropy_is_below_its_target():
    log_alpha = torch.tensor(math.log(0.2), requires_grad=True)
    # Entropy 1 (log pi = -1), target 3: L = -0.2 * (-1 + 3).
    loss = sac.temperature_loss(log_alpha, torch.tensor([-1.0, -1.0]), 3.0)
    loss.backward()
    assert loss.item() == pytest.approx(-0.4)
    assert log_alpha.grad.item() == pytest.approx(-0.4)


def test_the_actor_loss_by_hand():
    got = sac.actor_loss(torch.tensor(0.5), torch.tensor([1.0, 3.0]), torch.tensor([4.0, 6.0]))
    assert got.item() == pytest.approx((0.5 - 4 + 1.5 - 6) / 2)


def test_a_single_width_halves_twice():
    assert sac.hidden_widths(512) == (512, 256, 128)
    assert sac.hidden_widths((256, 128)) == (256, 128)


@pytest.mark.parametrize("changes", PRESETS)
def test_updates_are_finite_and_report_only_canonical_tags(changes):
    cfg = make_config(**changes)
    state = make_state(cfg)
    for seed in range(4):
        metrics = sac.update(state, make_batch(seed=seed), cfg)
    assert set(metrics) == {
        "Loss/critic",
        "Loss/actor",
        "Loss/temperature",
        "Loss/entropy",
        "Policy/temperature",
        "Train/critic_gradient_norm",
        "Train/actor_gradient_norm",
        "Train/target_q_max",
        "Train/target_q_min",
    }
    for value in metrics.values():
        assert value.dim() == 0
        assert math.isfinite(value)


@pytest.mark.parametrize("changes", PRESETS)
def test_the_target_moves_the_fraction_tau_towards_the_updated_critic(changes):
    cfg = make_config(**changes)
    state = make_state(cfg)
    before = copy.deepcopy(state.target_critics)
    sac.update(state, make_batch(), cfg)
    for old, new, online in zip(
        before.parameters(),
        state.target_critics.parameters(),
        state.critics.parameters(),
        strict=True,
    ):
        assert torch.allclose(new, old + 0.1 * (online - old), atol=1e-7)


def test_the_actor_moves_every_policy_frequency_updates_only():
    cfg = make_config(policy_frequency=3)
    state = make_state(cfg)
    moved = []
    for seed in range(6):
        before = copy.deepcopy(state.actor.state_dict())
        sac.update(state, make_batch(seed=seed), cfg)
        after = state.actor.state_dict()
        moved.append(any(not torch.equal(before[k], after[k]) for k in before))
    assert moved == [True, False, False, True, False, False]


def test_the_critics_get_no_update_from_the_actor_loss():
    cfg = make_config(critic_lr=1e-30, policy_frequency=1)
    state = make_state(cfg)
    before = copy.deepcopy(state.critics.state_dict())
    sac._update_actor(state, make_batch(), cfg)
    for name, value in state.critics.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("changes", PRESETS)
def test_saving_and_loading_continues_bit_for_bit(changes):
    cfg = make_config(**changes)
    state = make_state(cfg)
    for seed in range(3):
        sac.update(state, make_batch(seed=seed), cfg)
    other = make_state(cfg, seed=99)
    other.load_state_dict(copy.deepcopy(state.state_dict()))
    for seed in range(3, 6):
        expected = sac.update(state, make_batch(seed=seed), cfg)
        got = sac.update(other, make_batch(seed=seed), cfg)
        for tag in expected:
            assert torch.equal(got[tag], expected[tag])
    for name, value in state.actor.state_dict().items():
        assert torch.equal(other.actor.state_dict()[name], value)


@pytest.mark.parametrize("field", ["reward", "obs", "next_obs", "critic_obs", "action"])
@pytest.mark.parametrize("changes", PRESETS)
def test_a_nan_in_a_batch_never_reaches_the_weights(changes, field):
    cfg = make_config(policy_frequency=1, **changes)
    state = make_state(cfg)
    batch = make_batch()
    getattr(batch, field)[3] = float("nan")
    sac.update(state, batch, cfg)
    assert state.skipped_steps.item() > 0
    for tensors in (state.actor, state.critics, state.target_critics):
        for value in tensors.state_dict().values():
            assert bool(torch.isfinite(value).all())
    assert math.isfinite(state.log_alpha.detach())
    sac.update(state, make_batch(), cfg)


@pytest.mark.parametrize(
    ("discounts", "expected"),
    [
        # Reward 1 for ever, cut by time every 10 steps: V = 1 / (1 - gamma) if a time limit is
        # bootstrapped, and less if it is treated as an end (here one row in ten has discount 0:
        # V = 1 + 0.9 * 0.9 V).
        pytest.param([0.8] * 10, 5.0, id="time-limit-bootstrapped"),
        pytest.param([0.8] * 9 + [0.0], 1 / (1 - 0.9 * 0.8), id="time-limit-taken-for-an-end"),
    ],
)
@pytest.mark.parametrize("atoms", [1, 51])
def test_a_constant_reward_is_worth_one_over_one_minus_gamma(discounts, expected, atoms):
    cfg = make_config(
        num_atoms=atoms,
        v_min=-1.0,
        v_max=9.0,
        critic_lr=2e-2,
        tau=0.2,
        alpha_init=1e-6,
        alpha_lr=0.0,
        policy_frequency=10_000,
    )
    state = make_state(cfg)
    constant = torch.ones(10, 3), torch.ones(10, 4)
    batch = make_batch(
        10,
        obs=constant[0],
        critic_obs=constant[1],
        next_obs=constant[0],
        next_critic_obs=constant[1],
        action=torch.zeros(10, 2),
        reward=torch.ones(10),
        discount=torch.tensor(discounts),
    )
    for _ in range(600):
        sac.update(state, batch, cfg)
    outputs = state.critics(batch.critic_obs, batch.action)
    value = outputs[..., 0] if atoms == 1 else outputs.softmax(-1) @ state.support
    assert value.mean().item() == pytest.approx(expected, rel=0.03)


def test_the_preset_table_covers_the_configuration_choices():
    choices = SacConfig.__dataclass_fields__["preset"].type
    assert set(sac.PRESETS) == {"fast", "classic"}
    assert all(name in str(choices) for name in sac.PRESETS)


def test_alpha_lr_zero_keeps_the_temperature():
    cfg = dataclasses.replace(make_config(), alpha_lr=0.0)
    state = make_state(cfg)
    sac.update(state, make_batch(), cfg)
    assert state.log_alpha.item() == pytest.approx(math.log(0.1))


def test_the_learning_rate_falls_linearly_and_stays_at_its_end():
    cfg = make_config(lr_end=1e-4, lr_decay_steps=10)
    assert sac.decayed(1e-3, 0, cfg) == 1e-3
    assert sac.decayed(1e-3, 5, cfg) == pytest.approx(5.5e-4)
    assert sac.decayed(1e-3, 10, cfg) == pytest.approx(1e-4)
    assert sac.decayed(1e-3, 1000, cfg) == pytest.approx(1e-4)
    assert sac.decayed(1e-3, 1000, make_config()) == 1e-3


def test_the_averaged_actor_is_the_mean_of_the_first_updates():
    state = make_state(make_config(policy_ema=0.9))
    weights = []
    for _ in range(3):
        sac.update(state, make_batch(), make_config(policy_ema=0.9))
        weights.append(state.actor_optimizer.flat.clone())
    assert torch.allclose(state.average_vector, torch.stack(weights).mean(dim=0), atol=1e-6)
