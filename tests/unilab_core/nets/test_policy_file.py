"""policy.pt."""

import numpy as np
import pytest
import torch

from unilab_core.nets.normalizer import ObsNormalizer
from unilab_core.nets.policy_file import PolicyFileError, load_policy, save_policy
from unilab_core.nets.squashed_gaussian import ActorSpec, SquashedGaussianActor
from unilab_core.nets.torch_file import write_torch_file

CONTRACT = {
    "task": "t",
    "sim": "mujoco",
    "algo": "sac",
    "obs_width": 3,
    "action_width": 2,
    "obs_terms": [["gyro", 3]],
    "env": {"physics": "fast"},
    "iteration": 7,
}


@pytest.fixture
def actor():
    torch.manual_seed(1)
    actor = SquashedGaussianActor(
        ActorSpec(
            obs_width=3,
            hidden_dims=(8, 4),
            activation="silu",
            layer_norm=True,
            log_std_min=-5.0,
            log_std_max=0.0,
            mean_limit=10.0,
            action_low=(-1.0, -1.0),
            action_high=(1.0, 1.0),
        )
    )
    torch.nn.init.normal_(actor.net[-1].weight)
    return actor


def test_a_loaded_policy_acts_like_the_actor_behind_its_normaliser(tmp_path, actor):
    normalizer = ObsNormalizer(3)
    normalizer.update(torch.randn(50, 3) * 2 + 1)
    save_policy(tmp_path / "policy.pt", actor, normalizer, CONTRACT)
    policy = load_policy(tmp_path / "policy.pt")
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    with torch.no_grad():
        expected = actor.act(normalizer(torch.from_numpy(obs))).numpy()
    np.testing.assert_array_equal(policy.act(obs), expected)
    assert policy.contract == CONTRACT


def test_without_a_normaliser_observations_go_in_as_they_are(tmp_path, actor):
    save_policy(tmp_path / "policy.pt", actor, None, CONTRACT)
    obs = np.ones((1, 3), np.float32)
    with torch.no_grad():
        expected = actor.act(torch.from_numpy(obs)).numpy()
    np.testing.assert_array_equal(load_policy(tmp_path / "policy.pt").act(obs), expected)


def test_observations_of_another_width_are_refused(tmp_path, actor):
    save_policy(tmp_path / "policy.pt", actor, None, CONTRACT)
    with pytest.raises(ValueError, match=r"expected \(E, 3\)"):
        load_policy(tmp_path / "policy.pt").act(np.ones((1, 4), np.float32))


def test_a_non_finite_weight_is_never_written(tmp_path, actor):
    with torch.no_grad():
        actor.net[0].bias[1] = float("nan")
    with pytest.raises(ValueError, match=r"net\.0\.bias"):
        save_policy(tmp_path / "policy.pt", actor, None, CONTRACT)
    assert not (tmp_path / "policy.pt").exists()


def test_a_file_of_another_kind_is_named(tmp_path):
    write_torch_file(tmp_path / "policy.pt", {"format": "unilab-checkpoint"})
    with pytest.raises(PolicyFileError, match="not a unilab-policy"):
        load_policy(tmp_path / "policy.pt")


def test_an_incomplete_contract_is_refused(tmp_path, actor):
    with pytest.raises(ValueError, match="iteration"):
        save_policy(
            tmp_path / "p.pt", actor, None, {k: v for k, v in CONTRACT.items() if k != "iteration"}
        )
