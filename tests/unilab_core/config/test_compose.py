"""Order of the layers, and one-line errors for everything a user can mistype."""

import json

import pytest

from unilab_core.config.algo import ALGO_NAMES
from unilab_core.config.compose import compose, conf_dir, task_names
from unilab_core.config.config import config_from_dict
from unilab_core.config.errors import ConfigError

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def build(conf, *overrides, algo="sac", task="walk", sim="mujoco", base=None):
    return compose(algo, task, sim, list(overrides), base=base, environ=NO_GPU, conf=conf)


def test_later_layers_win_and_the_command_line_wins_over_all(conf):
    config = build(conf)
    # config.yaml says 1000, base.yaml 200, hardware/cpu 20.
    assert config.algo.num_envs == 20
    assert config.algo.tau == 0.5  # mujoco.yaml over config.yaml
    assert config.algo.gamma == 0.97
    assert config.hardware.profile == "cpu"
    assert config.training.device == "cpu"
    assert build(conf, "algo.num_envs=7").algo.num_envs == 7


def test_gpu_profile_leaves_the_numbers_of_the_cpu_profile_out(conf):
    config = build(conf, "hardware.profile=gpu")
    assert config.hardware.profile == "gpu"
    assert (config.algo.num_envs, config.algo.batch_size) == (200, 64)


def test_flags_become_keys(conf):
    config = build(conf)
    assert (config.training.task_name, config.training.sim_backend) == ("walk", "mujoco")


def test_published_rewards_replace_the_default_ones_and_an_override_replaces_both(conf):
    assert build(conf).env.rewards["effort"].weight == -0.5
    published = build(conf, "env.rewards_preset=published")
    assert published.env.rewards["effort"].weight == -9.0
    assert published.env.rewards_preset == "published"
    both = build(conf, "env.rewards_preset=published", "env.rewards.effort.weight=-3")
    assert both.env.rewards["effort"].weight == -3.0


def test_published_rewards_of_a_task_without_them_are_refused(conf):
    with pytest.raises(ConfigError, match="crawl has no published rewards"):
        build(conf, "env.rewards_preset=published", task="crawl")


def test_a_preset_overlays_the_hardware_profile(conf):
    config = build(conf, "algo.preset=classic")
    assert (config.algo.num_atoms, config.algo.batch_size, config.algo.num_envs) == (1, 32, 20)


def test_terms_can_be_added_and_removed(conf):
    config = build(conf, "~env.rewards.effort", "+env.rewards.alive={function: alive, weight: 2}")
    assert sorted(config.env.rewards) == ["alive", "tracking"]
    assert config.env.rewards["alive"].weight == 2.0


def test_keys_that_only_a_dataclass_declares_can_be_set(conf):
    config = build(conf, "training.max_wall_time_s=30", "training.nan_guard.buffer_size=5")
    assert config.training.max_wall_time_s == 30.0
    assert config.training.nan_guard.buffer_size == 5


def test_a_configuration_survives_json(conf):
    config = build(conf, "training.wandb_tags=[a,b]")
    assert config_from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_an_earlier_configuration_is_a_base_for_overrides(conf):
    earlier = build(conf, "algo.seed=5", "hardware.profile=gpu").to_dict()
    config = build(conf, "algo.max_iterations=7", base=earlier)
    assert (config.algo.seed, config.algo.max_iterations) == (5, 7)
    assert config.hardware.profile == "gpu"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algo.num_env=3", "unknown key 'algo.num_env'; nearest: algo.num_envs"),
        ("training.num_envs=3", "unknown key 'training.num_envs'; nearest: algo.num_envs"),
        ("env.rewards.efort.weight=1", "nearest: env.rewards.effort.weight"),
        ("+algo.momentum=1", "unknown key 'algo.momentum'"),
        ("~env.rewards.effrt", "nearest: env.rewards.effort"),
        ("algo.num_envs=many", "algo.num_envs: got 'many' (str), expected int"),
        ("algo.num_envs=1.5", "algo.num_envs: got 1.5 (float), expected int"),
        ("algo.num_envs=true", "algo.num_envs: got True (bool), expected int"),
        ("algo.num_envs=null", "algo.num_envs: got null, expected int"),
        ("algo.num_envs=0", "algo.num_envs: got 0, expected an integer >= 1"),
        ("algo.gamma=1.0", "algo.gamma: got 1.0, expected a number in [0, 1)"),
        ("algo.v_min=6", "algo.v_min: got 6.0, expected less than v_max = 5.0"),
        ("algo.actor_hidden_dim=[8,x]", "algo.actor_hidden_dim: got [8, 'x'] (list)"),
        ("algo.preset=clasic", "nearest: classic"),
        ("training=3", "training: expected a section of keys, got 3 (int)"),
        ("training.device=gpu", "training.device: got 'gpu', expected auto, cpu, cuda"),
        ("training.grace_s=9", "training.stop_grace_s: got 8.0, expected at least grace_s = 9.0"),
        ("training.sim_backend=other", "contradicts the flag: 'mujoco'"),
        ("hardware.profile=tpu", "hardware.profile: unknown value 'tpu'"),
        ("algo.num_envs", "cannot read 'algo.num_envs': expected KEY=VALUE"),
        ("algo.num_envs=1,2", "one value per key"),
        ("algo.actor_hidden_dim=[1", "expected KEY=VALUE"),
    ],
)
def test_a_mistake_is_one_line_that_names_key_got_and_expected(conf, override, message):
    with pytest.raises(ConfigError) as caught:
        build(conf, override)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"algo": "sax"}, "unknown algorithm 'sax'; nearest: sac"),
        ({"task": "wlak"}, "unknown task 'wlak'; nearest: walk"),
        ({"task": "../walk"}, "unknown task '../walk'; nearest: walk"),
        ({"sim": "mujco"}, "unknown physics backend 'mujco'; nearest: mujoco"),
        ({"sim": "mjwarp"}, "--sim mjwarp: not part of this version yet"),
    ],
)
def test_a_name_that_is_not_there_names_the_nearest_or_says_why(conf, names, message):
    with pytest.raises(ConfigError) as caught:
        build(conf, **names)
    assert message in str(caught.value)


def test_every_shipped_task_composes_for_both_profiles():
    tasks = [(algo, task) for algo in ALGO_NAMES for task in task_names(conf_dir(), algo)]
    for algo, task in tasks:
        for profile in ("cpu", "gpu"):
            config = compose(algo, task, overrides=[f"hardware.profile={profile}"], environ=NO_GPU)
            assert config.hardware.profile == profile
