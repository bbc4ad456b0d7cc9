"""Episode statistics by hand-counted ticks."""

from __future__ import annotations

import numpy as np
import pytest

from unilab_collector.episode_stats import RETURN_WINDOW_EPISODES, EpisodeStats


def tick(stats, reward, terminated=(), truncated=(), num_envs=2):
    term = np.zeros(num_envs, bool)
    trunc = np.zeros(num_envs, bool)
    term[list(terminated)] = True
    trunc[list(truncated)] = True
    return stats.add_tick(np.asarray(reward, np.float32), term, trunc)


def test_returns_and_lengths_are_counted_per_environment():
    stats = EpisodeStats(2)
    tick(stats, [1.0, 10.0])
    assert (stats.completed, stats.mean_return(), stats.mean_length()) == (0, None, None)
    done = tick(stats, [2.0, 20.0], terminated=[0])
    assert done.tolist() == [True, False]
    tick(stats, [4.0, 40.0], truncated=[1])
    # Environment 0: 1 + 2 over 2 steps; environment 1: 10 + 20 + 40 over 3 steps.
    assert (stats.completed, stats.timeouts) == (2, 1)
    assert stats.mean_return() == pytest.approx((3 + 70) / 2)
    assert stats.mean_length() == 2.5
    tick(stats, [8.0, 80.0], terminated=[0])
    # Environment 0 started again after its end: 4 + 8 over 2 steps.
    assert stats.mean_return() == pytest.approx((3 + 70 + 12) / 3)


def test_only_the_last_hundred_episodes_count():
    stats = EpisodeStats(1)
    for value in range(RETURN_WINDOW_EPISODES + 5):
        tick(stats, [float(value)], terminated=[0], num_envs=1)
    assert stats.completed == RETURN_WINDOW_EPISODES + 5
    assert stats.mean_return() == pytest.approx(np.mean(np.arange(5, 105)))


def test_reward_terms_are_averaged_and_terminations_summed_since_the_last_report():
    stats = EpisodeStats(2)
    stats.add_log({"reward/a": 1.0, "Episode_Termination/tilt": 2.0})
    stats.add_log({"reward/a": 3.0, "Episode_Termination/tilt": 1.0})
    rewards, terminations, totals = stats.take_terms()
    assert rewards == {"reward/a": 2.0}
    assert terminations == {"Episode_Termination/tilt": 3}
    stats.add_log({"reward/a": 5.0, "Episode_Termination/tilt": 4.0})
    rewards, terminations, totals = stats.take_terms()
    assert rewards == {"reward/a": 5.0}
    assert terminations == {"Episode_Termination/tilt": 4}
    assert totals == {"Episode_Termination/tilt": 7}
