"""The bound of PPO and APPO: what is summed, what overlaps, and that the parts are measured."""

import pytest

from unilab_core.config.compose import compose
from unilab_core.config.errors import ConfigError
from unilab_core.tools.bench.train import report, run
from unilab_core.tools.bench.train_bound import measure

BOUNDS = [{"rollout_s": 2.0, "update_s": 1.0}, {"rollout_s": 4.0, "update_s": 1.0}]
WALLS = [{"wall_s": 5.0, "collection_s": 3.5, "learning_s": 1.5}]


@pytest.mark.parametrize(("algo", "ratio", "ok"), [("ppo", 0.8, False), ("appo", 0.6, False)])
def test_turns_add_up_and_overlapping_roles_count_once(algo, ratio, ok):
    got = report(algo, WALLS, BOUNDS, steps=100, settings={})
    assert got.rows[0]["ratio"] == pytest.approx(ratio)
    assert got.rows[0]["steps_per_s"] == pytest.approx(20.0)
    assert got.ok is ok


def test_a_training_at_its_bound_passes():
    walls = [{"wall_s": 4.0, "collection_s": 3.0, "learning_s": 1.0}]
    assert report("ppo", walls, BOUNDS, steps=100, settings={}).ok


def test_every_part_of_the_bound_takes_time():
    overrides = ["algo.num_envs=4", "algo.num_steps_per_env=2", "algo.hidden_dims=[8]"]
    config = compose("ppo", "go2_joystick_flat", "mujoco", overrides)
    found = measure(config, "go2_joystick_flat", "both", 0.0, 1)
    assert set(found) == {"rollout_s", "update_s"}
    assert min(found.values()) > 0.0


def test_an_algorithm_without_rollouts_is_refused_by_name():
    with pytest.raises(ConfigError, match="--algo sac: expected ppo or appo"):
        run(algo="sac", task="go2_joystick_flat", blocks=1, block_s=1.0)
