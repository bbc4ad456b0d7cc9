"""PPO, APPO and gym tasks from the command line's names to the frozen configuration."""

import pytest

from unilab_core.config.compose import compose
from unilab_core.config.config import config_from_dict
from unilab_core.config.errors import ConfigError
from unilab_core.config.gym_env import GymEnvConfig

CPU = {"CUDA_VISIBLE_DEVICES": ""}
TASKS = ("go2_joystick_flat", "gym:Pendulum-v1", "gym:HalfCheetah-v5")


@pytest.mark.parametrize("algo", ["ppo", "appo"])
@pytest.mark.parametrize("task", TASKS)
def test_every_shipped_combination_composes_and_survives_a_round_trip(algo, task):
    config = compose(algo, task, environ=CPU)
    assert config_from_dict(config.to_dict()) == config
    assert config.algo.rollout_steps >= 12


@pytest.mark.parametrize("algo", ["ppo", "appo", "sac"])
def test_gym_tasks_use_their_own_section_and_backend(algo):
    config = compose(algo, "gym:Pendulum-v1", overrides=["env.max_episode_steps=50"], environ=CPU)
    assert isinstance(config.env, GymEnvConfig)
    assert config.env.max_episode_steps == 50
    assert config.training.sim_backend == "gym"


def test_small_tasks_keep_their_sizes_on_every_machine():
    sections = [
        compose("ppo", "gym:Pendulum-v1", overrides=[f"hardware.profile={name}"], environ=CPU).algo
        for name in ("cpu", "gpu")
    ]
    assert sections[0] == sections[1]
    assert sections[0].hidden_dims == (64, 64)
    assert sections[0].preset == "gym"


def test_published_rewards_restore_the_column():
    ours = compose("ppo", "go2_joystick_flat", environ=CPU)
    column = compose(
        "ppo", "go2_joystick_flat", overrides=["env.rewards_preset=published"], environ=CPU
    )
    assert ours.env.rewards["tracking_ang_vel"].weight == 1.0
    assert column.env.rewards["tracking_ang_vel"].weight == 0.2
    assert column.env.rewards["tracking_lin_vel"].params["sigma"] == 0.5
    assert column.env.actions["joint_position"].params["scale"] == 0.25
    assert column.env.observations["policy"]["gait_phase"].function == "phase_sines"


@pytest.mark.parametrize(
    ("task", "sim", "overrides", "text"),
    [
        ("gym:Pendulum-v1", "mjwarp", [], "runs on gym only"),
        ("gym:", "mujoco", [], "expected an id"),
        ("gym:Pendulum-v1", "mujoco", ["env.max_steps=1"], "env.max_episode_steps"),
        ("gymPendulum", "mujoco", [], "unknown task"),
        ("go2_joystick_flat", "mujoco", ["algo.lambda=1"], "unknown key"),
        ("go2_joystick_flat", "mujoco", ["algo.max_policy_lag=1"], "max_policy_lag"),
    ],
)
def test_what_cannot_work_is_a_one_line_error(task, sim, overrides, text):
    with pytest.raises(ConfigError, match=text) as caught:
        compose("appo", task, sim, overrides, environ=CPU)
    assert "\n" not in str(caught.value)
