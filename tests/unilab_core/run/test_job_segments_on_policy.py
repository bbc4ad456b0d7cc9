"""Segments of PPO and APPO, sized without torch and checked against the network."""

import numpy as np
import pytest

from unilab_core.config.compose import compose
from unilab_core.contracts import EnvSpec
from unilab_core.nets.gaussian import GaussianPolicy, pack_policy
from unilab_core.nets.policy_spec import policy_spec
from unilab_core.run.job_segments import experience_segments, snapshot_dims

CPU = {"CUDA_VISIBLE_DEVICES": ""}


def env_spec(num_envs):
    return EnvSpec(
        task="walk", sim="mujoco", num_envs=num_envs, obs_width=49, critic_obs_width=52,
        action_width=12, action_low=None, action_high=None, obs_terms=(("all", 49),),
        critic_obs_terms=(("all", 52),), reward_terms=("a", "b"), termination_terms=("fall",),
        log_keys=("reward/a", "reward/b", "Episode_Termination/fall"), ctrl_dt_s=0.02,
        max_episode_steps=1000, backend_device=None,
    )  # fmt: skip


def segments(algo):
    config = compose(algo, "go2_joystick_flat", environ=CPU)
    found = experience_segments(config, env_spec(config.algo.num_envs))
    return config, {segment.kind: segment for segment in found}


def test_ppo_has_one_slot_that_carries_the_transitions():
    config, found = segments("ppo")
    assert set(found) == {"inference_slot"}
    dims = found["inference_slot"].dims
    assert (dims["R"], dims["L"]) == (config.algo.num_envs, 3)


def test_appo_has_a_ring_and_a_snapshot_and_no_slot():
    config, found = segments("appo")
    assert set(found) == {"rollout_ring", "policy_snapshot"}
    dims = found["rollout_ring"].dims
    assert (dims["D"], dims["T"], dims["T1"]) == (config.algo.ring_slots, 24, 25)
    assert found["rollout_ring"].size_bytes > 0


@pytest.mark.parametrize("normalised", [True, False])
def test_the_snapshot_holds_exactly_the_packed_policy(normalised):
    override = [f"algo.obs_normalization={str(normalised).lower()}"]
    config = compose("appo", "go2_joystick_flat", overrides=override, environ=CPU)
    size = snapshot_dims(config.algo, env_spec(8))["P"]
    policy = GaussianPolicy(policy_spec(config.algo, obs_width=49, action_width=12))
    pack_policy(policy, np.zeros(size, np.float32))  # another size is refused
