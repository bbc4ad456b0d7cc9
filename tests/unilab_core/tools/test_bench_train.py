"""The bound of PPO and APPO: what is summed, what overlaps, and that the parts are measured."""

import pytest
import torch

from unilab_core.config.compose import compose
from unilab_core.config.errors import ConfigError
from unilab_core.envs import make_env
from unilab_core.nets.gaussian import GaussianPolicy
from unilab_core.nets.policy_file import Policy
from unilab_core.nets.policy_spec import policy_spec
from unilab_core.tools.bench import train_bound
from unilab_core.tools.bench.train import report, run

BOUNDS = [
    {
        "rollout_s": 3.0,
        "physics_s": 2.5,
        "forward_s": 0.5,
        "update_s": 1.0,
        "update_at_once_s": 0.5,
    }
]
WALLS = [
    {"wall_s": 4.0, "collection_s": 3.0, "learning_s": 1.0},
    {"wall_s": 6.0, "collection_s": 4.0, "learning_s": 2.0},
]


@pytest.mark.parametrize(
    ("algo", "ratio", "at_once", "ok"), [("ppo", 0.8, 0.7, False), ("appo", 0.6, 0.6, False)]
)
def test_turns_add_up_and_overlapping_roles_count_once(algo, ratio, at_once, ok):
    got = report(algo, WALLS, BOUNDS, steps=100, settings={})
    assert got.rows[0]["ratio"] == pytest.approx(ratio)
    assert got.rows[0]["ratio_at_once"] == pytest.approx(at_once)
    assert got.rows[0]["steps_per_s"] == pytest.approx(20.0)
    assert got.ok is ok


def test_a_training_at_its_bound_passes():
    walls = [{"wall_s": 4.0, "collection_s": 3.0, "learning_s": 1.0}]
    assert report("ppo", walls * 2, BOUNDS, steps=100, settings={}).ok


@pytest.mark.parametrize(
    ("algo", "steps", "num_threads"),
    [("ppo", "num_steps_per_env", 2), ("appo", "steps_per_env", 1)],
)
def test_every_part_of_the_bound_takes_time(algo, steps, num_threads, monkeypatch):
    monkeypatch.setattr(train_bound, "WARM_UP_TICKS", 2)
    overrides = ["algo.num_envs=4", f"algo.{steps}=2", "algo.hidden_dims=[8]"]
    config = compose(algo, "go2_joystick_flat", "mujoco", overrides)
    env = make_env("go2_joystick_flat", "mujoco", config.env, num_envs=1, seed=1, num_threads=1)
    spec = policy_spec(
        config.algo, obs_width=env.spec.obs_width, action_width=env.spec.action_width
    )
    env.close()
    policy = Policy(GaussianPolicy(spec), None, {"obs_width": spec.obs_width})
    before = torch.get_num_threads()
    try:
        found = train_bound.measure(config, "go2_joystick_flat", "both", 0.0, num_threads, policy)
    finally:
        torch.set_num_threads(before)
    assert set(found) == set(BOUNDS[0])
    assert (found["update_s"] == found["update_at_once_s"]) == (num_threads == 1)
    assert found["rollout_s"] > max(found["physics_s"], found["forward_s"])
    assert min(found.values()) > 0.0


def test_an_algorithm_without_rollouts_is_refused_by_name():
    with pytest.raises(ConfigError, match="--algo sac: expected ppo or appo"):
        run(algo="sac", task="go2_joystick_flat", blocks=1, block_s=1.0)
