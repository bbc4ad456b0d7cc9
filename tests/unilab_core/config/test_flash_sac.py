"""FlashSAC's section: shipped settings, limits, and the published column of go2."""

import pytest

from unilab_core.config.compose import compose, conf_dir, task_names
from unilab_core.config.config import config_from_dict
from unilab_core.config.errors import ConfigError
from unilab_core.config.gym_env import GymEnvConfig

CPU = {"CUDA_VISIBLE_DEVICES": ""}
GO2 = "go2_joystick_flat"
TASKS = (*task_names(conf_dir(), "flashsac"), "gym:Pendulum-v1", "gym:HalfCheetah-v4")


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("task", TASKS)
def test_every_shipped_combination_composes_and_survives_a_round_trip(task, profile):
    config = compose("flashsac", task, overrides=[f"hardware.profile={profile}"], environ=CPU)
    assert config_from_dict(config.to_dict()) == config
    assert config.algo.algo_log_name == "flash_sac"


def test_the_gpu_defaults_are_the_published_networks():
    algo = compose("flashsac", GO2, overrides=["hardware.profile=gpu"], environ=CPU).algo
    widths = algo.actor_hidden_dim, algo.critic_hidden_dim, algo.num_blocks, algo.block_expansion
    assert widths == (128, 256, 2, 4)
    assert (algo.num_atoms, algo.v_min, algo.v_max) == (101, -5.0, 5.0)
    assert (algo.actor_lr, algo.lr_end, algo.lr_decay_steps) == (3e-4, 1.5e-4, 500_000)
    assert (algo.noise_zeta_mu, algo.noise_max_repeat) == (2.0, 16)


def test_the_published_preset_is_the_off_policy_column():
    flash, sac = (
        compose(algo, GO2, overrides=["env.rewards_preset=published"], environ=CPU).env
        for algo in ("flashsac", "sac")
    )
    assert flash.rewards == sac.rewards
    assert flash.rewards["tracking_ang_vel"].weight == 0.2
    assert flash.actions["joint_position"].params == {"scale": 0.4, "clip": [-1.0, 1.0]}
    assert not flash.curriculum
    base, sac_base = (compose(algo, GO2, environ=CPU).env for algo in ("flashsac", "sac"))
    assert flash.observations == sac.observations
    assert base.observations == sac_base.observations  # how they differ: test_sac_go2_settings
    for section in ("commands", "terminations", "physics", "ctrl_dt", "sim_dt"):
        assert getattr(base, section) == getattr(flash, section), section


def test_the_gym_preset_is_the_one_of_published_cpu_simulators():
    config = compose("flashsac", "gym:HalfCheetah-v4", environ=CPU)
    assert isinstance(config.env, GymEnvConfig)
    algo = config.algo
    assert (algo.preset, algo.num_envs, algo.batch_size, algo.learning_starts) == (
        "gym", 1, 512, 10_000,
    )  # fmt: skip
    assert (algo.actor_hidden_dim, algo.critic_hidden_dim) == (128, 256)


@pytest.mark.parametrize("task", ["gym:Pendulum-v1", "gym:HalfCheetah-v4"])
def test_small_tasks_keep_their_settings_on_every_machine(task):
    cpu, gpu = (
        compose("flashsac", task, overrides=[f"hardware.profile={name}"], environ=CPU).algo
        for name in ("cpu", "gpu")
    )
    assert cpu == gpu


def test_a_curriculum_restarts_the_replay_just_after_its_step():
    config = compose("flashsac", GO2, environ=CPU)
    after_steps = config.env.curriculum["tracking"].params["after_steps"]
    assert after_steps < config.algo.replay_restart_tick <= after_steps + 5


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algo.num_atoms=1", "num_atoms: got 1, expected an integer >= 2"),
        ("algo.batch_size=1", "batch_size: got 1, expected an integer >= 2"),
        ("algo.num_blocks=0", "num_blocks: got 0, expected an integer >= 1"),
        ("algo.noise_max_repeat=0", "noise_max_repeat: got 0, expected an integer >= 1"),
        ("algo.noise_zeta_mu=0", "noise_zeta_mu: got 0.0, expected a number > 0"),
        ("algo.temp_target_sigma=-1", "temp_target_sigma: got -1.0, expected a number > 0"),
        ("algo.v_max=-6", "v_min: got"),
        ("algo.actor_hidden_dim=[64,32]", "algo.actor_hidden_dim: got [64, 32] (list), expected"),
        ("algo.obs_normalisation=true", "unknown key"),
        ("algo.noise_zeta=2", "nearest: algo.noise_zeta_mu"),
    ],
)
def test_a_mistake_is_one_line_that_names_key_got_and_expected(override, message):
    with pytest.raises(ConfigError) as caught:
        compose("flashsac", GO2, overrides=[override], environ=CPU)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
