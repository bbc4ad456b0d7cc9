"""Every configuration that is shipped resolves, and its environment and learner can be built."""

from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch

from unilab_core.config.algo_registry import ALGO_CONFIGS
from unilab_core.config.compose import compose, conf_dir, task_names
from unilab_core.config.config import config_from_dict
from unilab_core.config.hardware import PROFILES
from unilab_core.config.support import unsupported_settings
from unilab_core.envs import make_env
from unilab_learner.learner import learner_class

pytest.importorskip("gymnasium")

SHIPPED = sorted(name for name in ALGO_CONFIGS if (conf_dir() / name / "config.yaml").is_file())
GYM = "gym:Pendulum-v1"
SMALL = ("algo.num_envs=4",)
SMALL_REPLAY = ("algo.replay_buffer_n=32",)


def tasks_of(algo):
    """Tasks of our own, and gym tasks: one for the general settings, and those with their own."""
    folders = (path.parent.name for path in (conf_dir() / algo / "task").glob("gym_*/base.yaml"))
    special = {f"gym:{name.removeprefix('gym_')}" for name in folders}
    return [*task_names(conf_dir(), algo), *sorted(special | {GYM})]


def presets_of(algo):
    """What the class allows, which includes every file."""
    hint = get_type_hints(ALGO_CONFIGS[algo])["preset"]
    assert get_origin(hint) is Literal
    return get_args(hint)


CASES = [
    (algo, task, profile, preset)
    for algo in SHIPPED
    for task in tasks_of(algo)
    for profile in PROFILES
    for preset in presets_of(algo)
]


def composed(algo, task, profile, preset, *overrides):
    words = [f"hardware.profile={profile}", f"algo.preset={preset}", *overrides]
    return compose(algo, task, overrides=words)


def test_every_file_below_conf_belongs_to_a_case():
    """A preset or task that no case reads would be shipped untested."""
    for algo in SHIPPED:
        files = {path.stem for path in (conf_dir() / algo / "preset").glob("*.yaml")}
        assert files <= set(presets_of(algo))
        profiles = {path.stem for path in (conf_dir() / algo / "hardware").glob("*.yaml")}
        assert profiles <= set(PROFILES)
    folders = {path.parent.name for path in conf_dir().glob("*/config.yaml")}
    assert folders == set(SHIPPED)


@pytest.mark.parametrize(("algo", "task", "profile", "preset"), CASES)
def test_it_resolves_runs_on_its_machine_and_survives_the_round_trip(algo, task, profile, preset):
    config = composed(algo, task, profile, preset)
    assert unsupported_settings(config, has_gpu=profile == "gpu") == []
    assert config.algo.preset == preset
    assert config_from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("algo", "task"),
    [
        (algo, task)
        for algo in SHIPPED
        for task in task_names(conf_dir(), algo)
        if (conf_dir() / algo / "task" / task / "published.yaml").is_file()
    ],
)
def test_the_published_rewards_resolve(algo, task):
    config = composed(algo, task, "cpu", presets_of(algo)[0], "env.rewards_preset=published")
    assert config.env.rewards_preset == "published"


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "task", "profile", "preset"), CASES)
def test_its_environment_and_learner_can_be_built(algo, task, profile, preset):
    small = (*SMALL, *(SMALL_REPLAY if ALGO_CONFIGS[algo].uses_replay else ()))
    config = composed(algo, task, profile, preset, *small)
    env = make_env(
        task, config.training.sim_backend, config.env, num_envs=4, seed=config.algo.seed,
        num_threads=1,
    )  # fmt: skip
    try:
        result = env.reset()
        learner = learner_class(config)(config.algo, env.spec, torch.device("cpu"), use_amp=False)
        assert result.obs.shape == (4, env.spec.obs_width)
        assert learner.rows_per_batch >= 1
        assert learner.state_dict()
    finally:
        env.close()
