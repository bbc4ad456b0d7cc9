"""Mirrored rows by hand."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from unilab_core.config.compose import compose
from unilab_core.config.errors import ConfigError
from unilab_core.contracts import EnvSpec, MirrorMap, Symmetry
from unilab_learner.replay.buffer import ReplayRows
from unilab_learner.replay.mirror import Mirror
from unilab_learner.rollout_pool import RolloutPool

SWAP = MirrorMap(index=(1, 0), sign=(1.0, -1.0))
KEEP = MirrorMap(index=(0, 1, 2), sign=(1.0, 1.0, -1.0))


def test_odd_rows_are_mirrored_and_rewards_stay():
    rows = ReplayRows(
        critic_obs=torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        action=torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        obs=torch.tensor([[5.0, 6.0], [7.0, 8.0]]),
        reward=torch.tensor([1.0, 2.0]),
        discount=torch.tensor([0.9, 0.0]),
        next_critic_obs=torch.tensor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]),
        next_obs=torch.tensor([[0.0, 1.0], [2.0, 3.0]]),
    )
    mirror = Mirror(Symmetry(obs=SWAP, critic_obs=KEEP, action=SWAP), torch.device("cpu"))
    rows = mirror.every_second(rows)
    assert rows.obs.tolist() == [[5.0, 6.0], [8.0, -7.0]]
    assert rows.next_obs.tolist() == [[0.0, 1.0], [3.0, -2.0]]
    assert rows.action.tolist() == [[1.0, 2.0], [4.0, -3.0]]
    assert rows.critic_obs.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, -6.0]]
    assert rows.next_critic_obs.tolist() == [[1.0, 1.0, 1.0], [2.0, 2.0, -2.0]]
    assert rows.reward.tolist() == [1.0, 2.0]


def test_an_image_of_an_image_is_the_original_and_spreads_keep_their_sign():
    mirror = Mirror(Symmetry(obs=SWAP, critic_obs=KEEP, action=SWAP), torch.device("cpu"))
    rows = torch.arange(12.0).reshape(2, 3, 2)
    assert mirror.obs(rows)[0, 0].tolist() == [1.0, -0.0]
    assert torch.equal(mirror.action(mirror.action(rows)), -rows)  # SWAP turns a quarter
    assert mirror.spread(torch.tensor([0.2, 0.7])).tolist() == pytest.approx([0.7, 0.2])


def test_a_task_without_an_image_is_refused_by_name():
    with pytest.raises(ConfigError, match="symmetry_augmentation: go2_joystick_flat has no known"):
        Mirror.of(spec(None), torch.device("cpu"))


def test_the_pool_mirrors_the_rollouts_of_odd_environments_with_their_final_observations():
    symmetry = Symmetry(obs=SWAP, critic_obs=KEEP, action=SWAP)
    cfg = compose("appo", "go2_joystick_flat", "mujoco", ("algo.num_envs=2",)).algo
    cfg = dataclasses.replace(cfg, steps_per_env=2, replay_queue_size=1, num_mini_batches=1)
    pool = RolloutPool(cfg, spec(symmetry), torch.device("cpu"), None)
    ones = np.ones((2, 2), np.float32)
    pool.stage(
        SimpleNamespace(
            policy_version=0,
            obs=np.tile(np.float32([1, 2]), (3, 2, 1)),
            critic_obs=np.tile(np.float32([1, 2, 3]), (3, 2, 1)),
            actions=np.tile(np.float32([5, 6]), (2, 2, 1)),
            log_prob=-ones,
            reward=ones,
            terminated=0 * ones,
            truncated=np.float32([[0, 0], [1, 1]]),
            final_critic_obs=np.tile(np.float32([7, 8, 9]), (2, 2, 1)),
        ),
        version=0,
    )
    batch = pool.batch(0)
    assert batch.obs[0].tolist() == [[1.0, 2.0], [2.0, -1.0]]
    assert batch.critic_obs[2].tolist() == [[1.0, 2.0, 3.0], [1.0, 2.0, -3.0]]
    assert batch.actions[1].tolist() == [[5.0, 6.0], [6.0, -5.0]]
    assert batch.final_critic_obs.tolist() == [[7.0, 8.0, 9.0], [7.0, 8.0, -9.0]]
    assert batch.log_prob.unique().tolist() == [-1.0]


def spec(symmetry):
    return EnvSpec(
        task="go2_joystick_flat",
        sim="mujoco",
        num_envs=2,
        obs_width=2,
        critic_obs_width=3,
        action_width=2,
        action_low=None,
        action_high=None,
        obs_terms=(("all", 2),),
        critic_obs_terms=(("all", 3),),
        reward_terms=("alive",),
        termination_terms=("time_out",),
        log_keys=("reward/alive",),
        ctrl_dt_s=0.02,
        max_episode_steps=50,
        backend_device=None,
        symmetry=symmetry,
    )
