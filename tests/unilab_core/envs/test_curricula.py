"""scale_penalties: weights follow the running mean of the episode length."""

import numpy as np
import pytest

from unilab_core.config.compose import compose
from unilab_core.config.env import CurriculumTermConfig
from unilab_core.envs import make_env
from unilab_core.envs.managers.curriculum import make_curriculum_manager
from unilab_core.envs.mdp.curricula import CurriculumContext, raise_weights

PARAMS = {
    "terms": ["penalty"],
    "low": 0.25,
    "high": 0.5,
    "step": 0.1,
    "up_steps": 750,
    "down_steps": 150,
}


@pytest.fixture
def context():
    return CurriculumContext(
        reward_names=("bonus", "penalty"),
        reward_weights=np.array([1.0, -4.0], np.float32),
        episode_steps=np.full(100, 1000),
        num_steps=lambda: 0,
    )


def manager_of(context, **changes):
    config = CurriculumTermConfig(function="scale_penalties", params={**PARAMS, **changes})
    return make_curriculum_manager({"penalties": config}, context)


def test_penalties_start_weak_and_other_weights_stay(context):
    manager_of(context)
    assert context.reward_weights.tolist() == [1.0, -1.0]


def test_long_episodes_strengthen_up_to_the_full_factor(context):
    manager = manager_of(context)
    everyone = np.arange(100)  # a hundred ended episodes replace the running mean at once
    levels = []
    for _ in range(4):
        manager.update(everyone)
        levels.append(manager.levels["penalties"])
    assert levels == pytest.approx([0.35, 0.45, 0.5, 0.5])
    assert context.reward_weights.tolist() == pytest.approx([1.0, -2.0])


def test_short_episodes_weaken_down_to_the_start(context):
    manager = manager_of(context)
    everyone = np.arange(100)
    manager.update(everyone)
    context.episode_steps[:] = 100
    for _ in range(3):
        manager.update(everyone)
    assert manager.levels["penalties"] == pytest.approx(0.25)


def test_lengths_in_between_change_nothing(context):
    manager = manager_of(context)
    context.episode_steps[:] = 400
    manager.update(np.arange(100))
    assert manager.levels["penalties"] == pytest.approx(0.25)


def test_an_unknown_reward_is_named(context):
    with pytest.raises(ValueError, match=r"unknown reward 'penalti'.*penalty"):
        manager_of(context, terms=["penalti"])


def test_a_task_without_curriculum_has_a_manager_that_does_nothing(context):
    manager = make_curriculum_manager({}, context)
    manager.update(np.arange(3))
    assert manager.levels == {}


def test_weights_are_raised_once_the_moment_has_come():
    steps = 0
    context = CurriculumContext(
        reward_names=("gait", "track"),
        reward_weights=np.array([1.0, 2.0], np.float32),
        episode_steps=np.zeros(2, np.intp),
        num_steps=lambda: steps,
    )
    term = raise_weights(context, after_steps=5, weights={"track": 7.0})
    steps = 4
    assert term.update(np.array([0])) == 0.0
    assert context.reward_weights.tolist() == [1.0, 2.0]
    steps = 5
    assert term.update(np.array([1])) == 1.0
    assert context.reward_weights.tolist() == [1.0, 7.0]
    with pytest.raises(ValueError, match="unknown reward 'trak'; nearest: track"):
        raise_weights(context, after_steps=5, weights={"trak": 1.0})


def test_a_resumed_environment_goes_on_with_its_curriculum():
    overrides = ["algo.num_envs=2", "env.episode_length_s=0.06"]
    config = compose("sac", "go2_joystick_flat", "mujoco", overrides)
    raised = config.env.curriculum["tracking"].params
    env = make_env("go2_joystick_flat", "mujoco", config.env, num_envs=2, seed=1, num_threads=1)
    column = env.rewards.names.index("tracking_lin_vel")
    env.reset()
    env.continue_from(raised["after_steps"])
    assert env.rewards.weights[column] == config.env.rewards["tracking_lin_vel"].weight
    for _ in range(4):  # past the end of an episode of three steps
        env.step(np.zeros((2, 12), np.float32))
    assert env.rewards.weights[column] == raised["weights"]["tracking_lin_vel"]
    env.close()
