"""Replay ring: exact rows, n-step sums cut at ends, nothing mixed across the wrap."""

import itertools

import numpy as np
import pytest
import torch

from unilab_learner.replay.buffer import ReplayBuffer, draw_ages

GAMMA = 0.5


def make_buffer(num_ticks=8, num_envs=2, **changes):
    values = {
        "num_ticks": num_ticks,
        "num_envs": num_envs,
        "obs_width": 2,
        "critic_obs_width": 3,
        "action_width": 1,
        "gamma": GAMMA,
    }
    return ReplayBuffer(**(values | changes))


def add_tick(buffer, tick, *, reward=None, terminated=(), truncated=()):
    """Tick t of environment e holds the number 10 t + e in every column."""
    envs = buffer.num_envs
    ids = np.arange(envs, dtype=np.float32)
    number = 10.0 * tick + ids
    column = number[:, None].astype(np.float32)
    flags = np.zeros((2, envs), np.uint8)
    flags[0, list(terminated)] = 1
    flags[1, list(truncated)] = 1
    buffer.append(
        obs=np.repeat(column, 2, 1),
        critic_obs=np.repeat(column, 3, 1),
        action=column,
        reward=number.astype(np.float32) if reward is None else np.full(envs, reward, np.float32),
        terminated=flags[0],
        truncated=flags[1],
        next_obs=np.repeat(column + 10, 2, 1),
        next_critic_obs=np.repeat(column + 10, 3, 1),
    )


def gather(buffer, *starts):
    ticks, envs = zip(*starts, strict=True)
    return buffer.gather(torch.tensor(ticks), torch.tensor(envs))


def test_rows_come_back_as_they_were_written():
    buffer = make_buffer()
    for tick in range(3):
        add_tick(buffer, tick, terminated=[1] if tick == 1 else ())
    rows = gather(buffer, (0, 0), (1, 1), (2, 0))
    assert rows.obs.tolist() == [[0, 0], [11, 11], [20, 20]]
    assert rows.critic_obs[1].tolist() == [11, 11, 11]
    assert rows.action.flatten().tolist() == [0, 11, 20]
    assert rows.reward.tolist() == [0, 11, 20]
    assert rows.next_obs[:, 0].tolist() == [10, 21, 30]
    assert rows.next_critic_obs[:, 2].tolist() == [10, 21, 30]
    assert rows.discount.tolist() == [GAMMA, 0.0, GAMMA]


def test_appending_tells_what_was_stored():
    buffer = make_buffer()
    add_tick(buffer, 0)
    ids = np.arange(2, dtype=np.float32)
    stored = buffer.append(
        obs=np.ones((2, 2), np.float32),
        critic_obs=np.full((2, 3), 2, np.float32),
        action=np.zeros((2, 1), np.float32),
        reward=ids + 5,
        terminated=np.array([1, 0], np.uint8),
        truncated=np.array([0, 1], np.uint8),
        next_obs=np.zeros((2, 2), np.float32),
        next_critic_obs=np.zeros((2, 3), np.float32),
    )
    assert stored.obs.tolist() == [[1, 1], [1, 1]]
    assert stored.critic_obs.tolist() == [[2, 2, 2], [2, 2, 2]]
    assert stored.reward.tolist() == [5, 6]
    assert stored.done.tolist() == [1, 1]


def test_a_time_limit_keeps_the_bootstrap_and_a_fall_does_not():
    buffer = make_buffer()
    add_tick(buffer, 0, terminated=[0], truncated=[1])
    assert gather(buffer, (0, 0), (0, 1)).discount.tolist() == [0.0, GAMMA]


def test_an_n_step_sum_by_hand():
    buffer = make_buffer(n_step=3)
    for tick in range(3):
        add_tick(buffer, tick, reward=[1.0, 2.0, 4.0][tick])
    rows = gather(buffer, (0, 1))
    assert rows.reward.item() == pytest.approx(1 + 0.5 * 2 + 0.25 * 4)
    assert rows.discount.item() == pytest.approx(0.125)
    assert rows.obs[0, 0].item() == 1
    assert rows.next_obs[0, 0].item() == 31


def test_an_n_step_sum_stops_at_a_fall_and_does_not_bootstrap():
    buffer = make_buffer(n_step=3)
    for tick in range(3):
        add_tick(buffer, tick, reward=1.0, terminated=[0] if tick == 1 else ())
    rows = gather(buffer, (0, 0), (0, 1))
    assert rows.reward.tolist() == pytest.approx([1.5, 1.75])
    assert rows.discount.tolist() == pytest.approx([0.0, 0.125])
    assert rows.next_obs[:, 0].tolist() == [20, 31]


def test_an_n_step_sum_stops_at_a_time_limit_and_bootstraps_from_the_final_observation():
    buffer = make_buffer(n_step=3)
    for tick in range(3):
        add_tick(buffer, tick, reward=1.0, truncated=[0] if tick == 0 else ())
    rows = gather(buffer, (0, 0))
    assert rows.reward.item() == 1.0
    assert rows.discount.item() == pytest.approx(0.5)
    assert rows.next_obs[0, 0].item() == 10


def test_samples_never_cross_the_write_position():
    buffer = make_buffer(num_ticks=5, num_envs=3, n_step=2)
    for tick in range(13):
        add_tick(buffer, tick)
    assert buffer.size == 15
    rows = buffer.sample(4000, torch.Generator().manual_seed(0))
    tick, env = rows.obs[:, 0] // 10, rows.obs[:, 0] % 10
    # Ticks 8..12 are stored; 12 has no successor yet.
    assert sorted(set(tick.tolist())) == [8, 9, 10, 11]
    assert sorted(set(env.tolist())) == [0, 1, 2]
    assert torch.equal(rows.next_obs[:, 0], 10 * (tick + 2) + env)
    assert torch.allclose(rows.reward, (10 * tick + env) + GAMMA * (10 * (tick + 1) + env))


def test_sampling_is_uniform_over_ticks_and_environments():
    buffer = make_buffer(num_ticks=4, num_envs=2)
    for tick in range(4):
        add_tick(buffer, tick)
    rows = buffer.sample(80_000, torch.Generator().manual_seed(1))
    counts = torch.unique(rows.obs[:, 0], return_counts=True)[1]
    assert len(counts) == 8
    assert counts.tolist() == pytest.approx([10_000] * 8, rel=0.05)


def share_by_age(decay, bins):
    """Closed form: the integral of max(1 - |decay| age, .1) over each bin, over its total."""
    d = abs(decay)
    knee = min(1.0, 0.9 / d)

    def mass(age):
        inside = min(age, knee)
        return inside - d * inside**2 / 2 + 0.1 * max(age - knee, 0.0)

    edges = [mass(k / bins) for k in range(bins + 1)]
    shares = [(b - a) / edges[-1] for a, b in itertools.pairwise(edges)]
    return shares if decay > 0 else shares[::-1]


@pytest.mark.parametrize("decay", [0.6, -0.6, 1.0, 3.0, -3.0])
def test_ages_follow_the_closed_form(decay):
    u = torch.rand(400_000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    counts = torch.histc(draw_ages(u, decay), bins=20, min=0.0, max=1.0) / 400_000
    assert counts.tolist() == pytest.approx(share_by_age(decay, 20), abs=3e-3)


@pytest.mark.parametrize("decay", [0.6, -0.6, 1.0])
def test_age_bias_reaches_the_ticks(decay):
    buffer = make_buffer(num_ticks=4, num_envs=1, age_decay=decay)
    for tick in range(6):
        add_tick(buffer, tick)
    rows = buffer.sample(100_000, torch.Generator().manual_seed(2))
    counts = torch.bincount((rows.obs[:, 0] // 10).long(), minlength=6)[2:] / 100_000
    newest_first = counts.flip(0).tolist()
    assert newest_first == pytest.approx(share_by_age(decay, 4), abs=0.01)


def test_no_age_is_drawn_outside_the_buffer_at_the_ends_of_the_generator():
    u = torch.tensor([0.0, 1.0 - 2**-24])
    for decay in (1e-6, 0.5, 1.0, 50.0, -0.5, -50.0):
        ages = draw_ages(u, decay)
        assert ages.min() >= 0.0
        assert ages.max() <= 1.0 + 1e-6


def test_a_buffer_shorter_than_the_n_step_sum_is_refused():
    with pytest.raises(ValueError, match="replay_buffer_n"):
        make_buffer(num_ticks=2, n_step=3)


def test_it_is_ready_when_the_first_whole_n_step_start_exists():
    buffer = make_buffer(n_step=2)
    add_tick(buffer, 0)
    assert not buffer.is_ready
    add_tick(buffer, 1)
    assert buffer.is_ready


def test_forgotten_ticks_are_never_drawn_again_and_new_ones_fill_the_ring():
    buffer = make_buffer(num_ticks=6, n_step=2)
    for tick in range(5):
        add_tick(buffer, tick)
    buffer.forget()
    # The newest two ticks stay, so that one whole 2-step start exists: that of tick 3.
    assert buffer.size == 2 * 2
    rows = buffer.sample(64, torch.Generator().manual_seed(0))
    assert set((rows.obs[:, 0] // 10).tolist()) == {3.0}
    for tick in range(5, 12):
        add_tick(buffer, tick)
    assert buffer.size == 6 * 2
    rows = buffer.sample(512, torch.Generator().manual_seed(0))
    assert set((rows.obs[:, 0] // 10).tolist()) == {6.0, 7.0, 8.0, 9.0, 10.0}


def add_dropped(buffer, tick, dropped):
    """A tick like `add_tick`'s whose rows `dropped` are placeholders."""
    envs = buffer.num_envs
    column = (10.0 * tick + np.arange(envs, dtype=np.float32))[:, None].astype(np.float32)
    mask = np.isin(np.arange(envs), dropped)
    buffer.append(
        obs=np.repeat(column, 2, 1),
        critic_obs=np.repeat(column, 3, 1),
        action=column,
        reward=np.where(mask, 0.0, column[:, 0]).astype(np.float32),
        terminated=np.zeros(envs, np.uint8),
        truncated=mask.astype(np.uint8),
        next_obs=np.repeat(column + 10, 2, 1),
        next_critic_obs=np.repeat(column + 10, 3, 1),
        dropped=mask.astype(np.uint8),
    )


def test_a_placeholder_is_never_drawn_until_its_place_is_written_again():
    buffer = make_buffer(num_ticks=3)
    for tick in range(3):
        add_dropped(buffer, tick, [1] if tick == 1 else [])
    generator = torch.Generator().manual_seed(1)
    drawn = set(buffer.sample(500, generator).obs[:, 0].tolist())
    assert drawn == {0.0, 1.0, 10.0, 20.0, 21.0}
    for tick in (3, 4):
        add_tick(buffer, tick)
    drawn = set(buffer.sample(500, generator).obs[:, 0].tolist())
    assert 41.0 in drawn


def test_an_n_step_sum_bootstraps_in_front_of_a_placeholder():
    buffer = make_buffer(n_step=3)
    for tick in range(4):
        add_dropped(buffer, tick, [1] if tick == 2 else [])
    rows = gather(buffer, (0, 1), (0, 0))
    assert rows.reward.tolist() == [1 + GAMMA * 11, 0 + GAMMA * 10 + GAMMA**2 * 20]
    assert rows.discount.tolist() == [GAMMA**2, GAMMA**3]
    assert rows.next_obs[:, 0].tolist() == [21.0, 30.0]
