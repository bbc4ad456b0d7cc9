"""FlashSAC: invariants after every step, targets by hand, bit-equal continuation, no NaN."""

import copy
import math

import pytest
import torch

from unilab_core.config.compose import compose
from unilab_core.nets.unit_norm import UnitBatchNorm, UnitLinear, UnitRmsNorm, project
from unilab_learner.algos import flash_sac
from unilab_learner.losses import categorical

DEVICE = torch.device("cpu")
SMALL = {
    "batch_size": 32, "actor_hidden_dim": 8, "critic_hidden_dim": 8, "num_blocks": 2,
    "block_expansion": 2, "num_atoms": 11, "v_min": -5.0, "v_max": 5.0, "tau": 0.1,
    "actor_lr": 1e-2, "critic_lr": 1e-2, "alpha_lr": 1e-2, "lr_end": 0.0, "alpha_init": 0.1,
    "policy_ema": 0.0, "actor_starts": 0, "n_step": 1, "temp_target_sigma": 0.15,
    "bn_momentum": 0.01,
}  # fmt: skip


def make_config(**changes):
    values = SMALL | changes
    overrides = [f"algo.{key}={value}" for key, value in values.items()]
    return compose("flashsac", "go2_joystick_flat", overrides=overrides, environ={"PATH": ""}).algo


def make_state(cfg, seed=0):
    torch.manual_seed(seed)
    return flash_sac.build_state(
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
    return flash_sac.FlashBatch(**(values | changes))


def require_on_spheres(network):
    for layer in network.modules():
        if isinstance(layer, UnitLinear):
            lengths = layer.weight.norm(dim=-1)
            assert torch.allclose(lengths, torch.ones_like(lengths), atol=1e-5)
        elif isinstance(layer, UnitBatchNorm):
            lengths = layer.gain_shift.flatten(1).norm(dim=-1)
            expected = math.sqrt(layer.gain_shift.shape[-1])
            assert lengths.tolist() == pytest.approx([expected] * len(lengths), rel=1e-5)
        elif isinstance(layer, UnitRmsNorm):
            lengths = layer.weight.norm(dim=-1)
            expected = math.sqrt(layer.weight.shape[-1])
            assert lengths.tolist() == pytest.approx([expected] * len(lengths), rel=1e-5)


ORDERS = pytest.mark.parametrize("first", [True, False], ids=["policy-first", "critic-first"])


@ORDERS
def test_every_optimiser_step_leaves_the_networks_on_their_spheres(first):
    cfg = make_config(policy_frequency=1, policy_before_critic=str(first).lower())
    state = make_state(cfg)
    moved = copy.deepcopy(state.critics.state_dict())
    for seed in range(6):
        for network in (state.actor, state.critics):
            require_on_spheres(network)
        flash_sac.update(state, make_batch(seed=seed), cfg)
    assert not torch.equal(state.critics.head.weight, moved["head.weight"])


def test_no_step_leaves_the_spheres_even_inside_an_update(monkeypatch):
    """Each of the two steps is projected before anything else reads the networks."""
    cfg = make_config(policy_frequency=1)
    state = make_state(cfg)
    original = flash_sac.update_critics

    def checked(state, batch, cfg):
        require_on_spheres(state.actor)
        return original(state, batch, cfg)

    monkeypatch.setattr(flash_sac, "update_critics", checked)
    flash_sac.update(state, make_batch(), cfg)
    require_on_spheres(state.critics)


def test_the_target_differs_from_the_online_critics_only_by_the_average():
    cfg = make_config()
    state = make_state(cfg)
    for old, online in zip(
        state.target_critics.parameters(), state.critics.parameters(), strict=True
    ):
        assert torch.equal(old, online)
    expected = state.target_vector.clone()
    for seed in range(3):
        flash_sac.update(state, make_batch(seed=seed), cfg)
        expected = expected + 0.1 * (state.critic_optimizer.flat - expected)
        assert torch.allclose(state.target_vector, expected, atol=1e-7)


def test_the_target_s_statistics_follow_its_own_batches():
    cfg = make_config()
    state = make_state(cfg)
    before = copy.deepcopy(state.target_critics.trunk.blocks[0].up_norm.running_mean)
    flash_sac.update(state, make_batch(), cfg)
    target = state.target_critics.trunk.blocks[0].up_norm.running_mean
    assert not torch.equal(target, before)
    # Same weights and same batch at the first update: the same statistics, not a tenth of them.
    online = state.critics.trunk.blocks[0].up_norm.running_mean
    assert torch.allclose(target, online, atol=1e-6)


@pytest.mark.parametrize(("width", "expected"), [(1, -0.478), (12, -5.738), (29, -13.867)])
def test_the_target_entropies_of_the_published_setting(width, expected):
    assert flash_sac.entropy_of_sigma(0.15, width) == pytest.approx(expected, abs=1e-3)


def test_the_target_distribution_comes_from_the_critic_with_the_smaller_mean_by_hand(monkeypatch):
    cfg = make_config(num_atoms=3, v_min=-1.0, v_max=1.0, alpha_init=1e-9)
    state = make_state(cfg)
    batch = make_batch(2, reward=torch.tensor([0.5, 0.25]), discount=torch.tensor([0.5, 0.0]))
    sure = 50.0
    # Row 0: critic 0 says -1, critic 1 says +1. Row 1: critic 0 says +1, critic 1 says 0.
    logits = torch.tensor(
        [[[sure, 0, 0], [0, 0, sure]], [[0, 0, sure], [0, sure, 0]]], dtype=torch.float32
    )
    monkeypatch.setattr(state.target_critics, "forward", lambda *_args, **_kwargs: logits)
    joint = torch.zeros(4, 4), torch.zeros(4, 2)
    target = flash_sac.critic_target(state, batch, cfg, joint, torch.zeros(2))
    # Row 0: .5 + .5 * (-1) = 0 -> the middle atom. Row 1: .25 -> 3/4 middle, 1/4 upper.
    assert target.tolist() == [
        pytest.approx([0.0, 1.0, 0.0], abs=1e-5),
        pytest.approx([0.0, 0.75, 0.25], abs=1e-5),
    ]


def test_the_entropy_bonus_shifts_every_atom_by_alpha_log_pi():
    cfg = make_config(num_atoms=101, alpha_init=0.5)
    state = make_state(cfg)
    batch = make_batch(discount=torch.full((32,), 0.1), reward=torch.zeros(32))
    joint = (
        torch.cat((batch.critic_obs, batch.next_critic_obs)),
        torch.cat((batch.action, batch.action)),
    )
    plain = flash_sac.critic_target(state, batch, cfg, joint, torch.zeros(32))
    shifted = flash_sac.critic_target(state, batch, cfg, joint, torch.full((32,), 4.0))
    change = (shifted @ state.support) - (plain @ state.support)
    assert change.tolist() == pytest.approx([0.1 * -0.5 * 4.0] * 32, abs=1e-3)


def test_the_prediction_is_the_first_half_of_the_joint_batch(monkeypatch):
    """[s; s'] and [a; a'] go through both critics in training mode, once each."""
    cfg = make_config()
    state = make_state(cfg)
    calls = []

    def spy(name, network):
        original = network.forward

        def forward(critic_obs, action, *, batch_stats, keep=slice(None)):
            calls.append((name, critic_obs, action, batch_stats, keep))
            return original(critic_obs, action, batch_stats=batch_stats, keep=keep)

        monkeypatch.setattr(network, "forward", forward)

    spy("online", state.critics)
    spy("target", state.target_critics)
    batch = make_batch()
    flash_sac.update_critics(state, batch, cfg)
    assert [name for name, *_ in calls] == ["target", "online"]
    for _, critic_obs, action, batch_stats, _ in calls:
        assert batch_stats
        assert torch.equal(critic_obs, torch.cat((batch.critic_obs, batch.next_critic_obs)))
        assert torch.equal(action[:32], batch.action)
        assert not torch.equal(action[32:], batch.action)
    assert torch.equal(calls[0][2], calls[1][2])
    assert [call[4] for call in calls] == [slice(32, None), slice(32)]


def test_the_critic_loss_is_the_mean_over_rows_and_critics():
    cfg = make_config(critic_lr=1e-30)
    state = make_state(cfg)
    batch = make_batch(discount=torch.zeros(32))
    frozen = copy.deepcopy(state.critics)
    project(frozen)
    generator = state.generator.get_state()
    loss = flash_sac.update_critics(state, batch, cfg)
    state.generator.set_state(generator)
    with torch.no_grad():
        next_action, _ = state.actor.sample(batch.next_obs, state.generator)
        logits = frozen(
            torch.cat((batch.critic_obs, batch.next_critic_obs)),
            torch.cat((batch.action, next_action)),
            batch_stats=True,
        )[:, :32]
    target = categorical.project(
        torch.full((32, 11), 1 / 11), batch.reward.unsqueeze(-1).expand(32, 11), -5.0, 5.0
    )
    by_hand = -(target * logits.log_softmax(-1)).sum(-1).mean()
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-4)


def test_the_temperature_rises_while_the_entropy_is_below_its_target():
    log_alpha = torch.tensor(math.log(0.2), requires_grad=True)
    loss = flash_sac.temperature_loss(log_alpha, torch.tensor(1.0), 3.0)
    loss.backward()
    assert loss.item() == pytest.approx(0.2 * (1.0 - 3.0))
    assert log_alpha.grad.item() < 0  # a step against the gradient raises it


def test_actor_and_temperature_move_every_policy_frequency_updates_only():
    cfg = make_config(policy_frequency=3)
    state = make_state(cfg)
    moved = []
    for seed in range(6):
        before = state.actor_optimizer.flat.clone(), state.log_alpha.detach().clone()
        flash_sac.update(state, make_batch(seed=seed), cfg)
        moved.append(
            (
                not torch.equal(before[0], state.actor_optimizer.flat),
                not torch.equal(before[1], state.log_alpha.detach()),
            )
        )
    assert moved == [(k % 3 == 0,) * 2 for k in range(6)]


def test_the_actor_starts_after_the_critics_have_had_their_updates():
    cfg = make_config(actor_starts=3, policy_frequency=2)
    state = make_state(cfg)
    moved = []
    for seed in range(7):
        before = state.actor_optimizer.flat.clone()
        metrics = flash_sac.update(state, make_batch(seed=seed), cfg)
        moved.append(not torch.equal(before, state.actor_optimizer.flat))
        assert ("Loss/actor" in metrics) == (seed >= 3)
    assert moved == [False, False, False, True, False, True, False]


@ORDERS
def test_the_order_of_the_two_steps_is_the_configured_one(monkeypatch, first):
    cfg = make_config(policy_frequency=1, policy_before_critic=str(first).lower())
    state = make_state(cfg)
    order = []
    for name in ("update_actor", "update_critics"):
        original = getattr(flash_sac, name)

        def noted(*args, name=name, original=original):
            order.append(name)
            return original(*args)

        monkeypatch.setattr(flash_sac, name, noted)
    flash_sac.update(state, make_batch(), cfg)
    expected = ["update_actor", "update_critics"]
    assert order == (expected if first else expected[::-1])


def test_the_actor_step_leaves_the_critics_and_their_statistics_alone():
    cfg = make_config()
    state = make_state(cfg)
    before = copy.deepcopy(state.critics.state_dict())
    flash_sac.update_actor(state, make_batch(), cfg)
    for name, value in state.critics.state_dict().items():
        assert torch.equal(value, before[name])


@ORDERS
def test_updates_are_finite_and_report_only_canonical_tags(first):
    cfg = make_config(policy_before_critic=str(first).lower())
    state = make_state(cfg)
    for seed in range(4):
        metrics = flash_sac.update(state, make_batch(seed=seed), cfg)
    assert set(metrics) == {
        "Loss/critic",
        "Loss/actor",
        "Loss/temperature",
        "Loss/entropy",
        "Policy/temperature",
    }
    for value in metrics.values():
        assert value.dim() == 0
        assert math.isfinite(value)


def test_saving_and_loading_continues_bit_for_bit():
    cfg = make_config(policy_ema=0.9)
    state = make_state(cfg)
    for seed in range(3):
        flash_sac.update(state, make_batch(seed=seed), cfg)
    other = make_state(cfg, seed=99)
    other.load_state_dict(copy.deepcopy(state.state_dict()))
    for seed in range(3, 6):
        expected = flash_sac.update(state, make_batch(seed=seed), cfg)
        got = flash_sac.update(other, make_batch(seed=seed), cfg)
        for tag in expected:
            assert torch.equal(got[tag], expected[tag])
    for network in ("actor", "average_actor", "critics", "target_critics"):
        loaded = getattr(other, network).state_dict()
        for name, value in getattr(state, network).state_dict().items():
            assert torch.equal(loaded[name], value), (network, name)


@pytest.mark.parametrize(
    "field", ["reward", "obs", "next_obs", "critic_obs", "next_critic_obs", "action"]
)
def test_a_nan_in_a_batch_never_reaches_weights_or_statistics(field):
    cfg = make_config(policy_frequency=1)
    state = make_state(cfg)
    batch = make_batch()
    getattr(batch, field)[3] = float("nan")
    flash_sac.update(state, batch, cfg)
    assert state.skipped_steps.item() > 0
    for network in (state.actor, state.critics, state.target_critics):
        for value in network.state_dict().values():
            assert bool(torch.isfinite(value).all())
    assert math.isfinite(state.log_alpha.detach())
    before = state.skipped_steps.item()
    flash_sac.update(state, make_batch(), cfg)
    assert state.skipped_steps.item() == before


@pytest.mark.parametrize(
    ("discounts", "expected"),
    [
        pytest.param([0.8] * 10, 5.0, id="time-limit-bootstrapped"),
        pytest.param([0.8] * 9 + [0.0], 1 / (1 - 0.9 * 0.8), id="time-limit-taken-for-an-end"),
    ],
)
def test_a_constant_reward_is_worth_one_over_one_minus_gamma(discounts, expected):
    cfg = make_config(
        num_atoms=51, v_min=-1.0, v_max=9.0, tau=0.2, alpha_init=1e-6, alpha_lr=0.0,
        policy_frequency=10_000,
    )  # fmt: skip
    state = make_state(cfg)
    # Noise instead of constants: a constant feature has no spread to normalise by.
    generator = torch.Generator().manual_seed(0)
    rows = 40
    for _ in range(600):
        noise = torch.randn(rows, 7, generator=generator)
        batch = make_batch(
            rows,
            obs=noise[:, :3],
            critic_obs=noise[:, :4],
            next_obs=torch.randn(rows, 3, generator=generator),
            next_critic_obs=torch.randn(rows, 4, generator=generator),
            action=torch.rand(rows, 2, generator=generator) * 2 - 1,
            reward=torch.ones(rows),
            discount=torch.tensor(discounts * (rows // 10)),
        )
        flash_sac.update(state, batch, cfg)
    logits = state.critics(batch.critic_obs, batch.action, batch_stats=False)
    value = categorical.expected_value(logits, state.support)
    assert value.mean().item() == pytest.approx(expected, rel=0.05)


def test_the_learning_rates_fall_along_half_a_cosine():
    cfg = make_config(lr_end=1e-4, lr_decay_steps=10, actor_lr=3e-4)
    assert flash_sac.decayed(3e-4, 0, cfg) == pytest.approx(3e-4)
    assert flash_sac.decayed(3e-4, 5, cfg) == pytest.approx(2e-4)
    quarter = 1e-4 + 2e-4 * 0.5 * (1 + math.cos(math.pi * 0.25))
    assert flash_sac.decayed(3e-4, 2.5, cfg) == pytest.approx(quarter)
    assert flash_sac.decayed(3e-4, 99, cfg) == pytest.approx(1e-4)
    assert flash_sac.decayed(0.0, 5, cfg) == 0.0  # a fixed temperature stays fixed
    assert flash_sac.decayed(3e-4, 99, make_config()) == 3e-4


def test_the_averaged_policy_is_the_mean_of_the_first_updates_on_its_spheres():
    cfg = make_config(policy_ema=0.9)
    state = make_state(cfg)
    weights = []
    for seed in range(3):
        flash_sac.update(state, make_batch(seed=seed), cfg)
        weights.append(state.actor_optimizer.flat.clone())
    assert torch.allclose(state.average_vector, torch.stack(weights).mean(dim=0), atol=1e-6)
    obs = torch.randn(512, 3) * 3 + 1
    settled = flash_sac.settle_average(state, obs)
    require_on_spheres(settled)
    assert torch.allclose(settled.trunk.input_norm.running_mean[0], obs.mean(0), atol=1e-5)
    assert torch.allclose(settled.trunk.input_norm.running_var[0], obs.var(0), rtol=1e-4)
    # The average itself is left as it is: the next update goes on from it.
    assert torch.allclose(state.average_vector, torch.stack(weights).mean(dim=0), atol=1e-6)
