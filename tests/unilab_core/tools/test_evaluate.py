"""The evaluation: what counts, what does not, and that nothing in a run's settings can ease it."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import yaml

from unilab_core.config.env import EnvConfig
from unilab_core.tasks.registry import find_task
from unilab_core.tools.evaluate import evaluate

CONF = Path(__file__).resolve().parents[3] / "conf" / "env" / "go2_joystick_flat.yaml"
TASK = "go2_joystick_flat"


@pytest.fixture
def config():
    return EnvConfig.from_dict(yaml.safe_load(CONF.read_text()))


@pytest.fixture
def short_judge():
    """Four commands, one start each, two seconds."""
    return dataclasses.replace(
        find_task(TASK).evaluation,
        lin_vel_x=(0.0, 1.0),
        lin_vel_y=(0.4,),
        ang_vel_yaw=(0.0, 0.8),
        num_seeds=1,
        duration_s=2.0,
    )


def stand(obs):
    return np.zeros((len(obs), 12), np.float32)


def collapse(obs):
    """All thighs far back: the robot falls at once."""
    return np.tile(np.float32([4.0, 8.0, 4.0] * 4), (len(obs), 1))


def march(obs):
    """An open-loop trot on the clock that the observation carries."""
    phase = obs[:, 45:49]
    actions = np.zeros((len(obs), 4, 3), np.float32)
    actions[:, :, 1] = -0.6 * phase
    actions[:, :, 2] = -1.2 * np.clip(-phase, 0.0, 1.0)
    return actions.reshape(len(obs), 12)


def test_standing_still_errs_by_the_commands(config, short_judge):
    result = evaluate(stand, TASK, config, judge=short_judge)
    # |(0, .4)| = .4 and |(1, .4)| = 1.07703 on average; yaw 0 and .8.
    assert result.error_vel_xy == pytest.approx((0.4 + 1.07703) / 2, abs=0.01)
    assert result.error_vel_yaw == pytest.approx(0.4, abs=0.01)
    assert (result.fall_rate, result.episodes, result.success) == (0.0, 4, False)


@pytest.mark.slow
def test_standing_still_scores_as_known_on_the_whole_grid(config):
    result = evaluate(stand, TASK, config, num_threads=2)
    assert result.episodes == 144
    assert result.error_vel_xy == pytest.approx(0.648, abs=2e-3)
    assert result.error_vel_yaw == pytest.approx(0.533, abs=2e-3)
    assert result.fall_rate == 0.0


def test_falling_within_the_first_second_leaves_nothing_to_average(config, short_judge):
    result = evaluate(collapse, TASK, config, judge=short_judge)
    assert result.fall_rate == 1.0
    assert result.error_vel_xy is None
    assert result.error_vel_yaw is None
    assert not result.success


def test_an_episode_counts_up_to_its_fall_only(config, short_judge):
    """A policy that falls after 1.5 s has the errors of the half second before."""
    step = 0

    def stand_then_collapse(obs):
        nonlocal step
        step += 1
        return stand(obs) if step <= 75 else collapse(obs)

    result = evaluate(stand_then_collapse, TASK, config, judge=short_judge)
    assert result.fall_rate == 1.0
    assert result.error_vel_xy is not None
    assert result.error_vel_xy < 2.0
    alone = evaluate(stand, TASK, config, judge=short_judge)
    assert result.mean_reward < alone.mean_reward


def test_success_needs_all_three_figures(config, short_judge):
    lenient = dataclasses.replace(
        short_judge, max_error_vel_xy=2.0, max_error_vel_yaw=2.0, max_fall_rate=0.05
    )
    assert evaluate(stand, TASK, config, judge=lenient).success
    for name in ("max_error_vel_xy", "max_error_vel_yaw", "max_fall_rate"):
        strict = dataclasses.replace(lenient, **{name: 0.0})
        assert not evaluate(stand, TASK, config, judge=strict).success, name


def test_the_same_policy_gets_the_same_numbers_whatever_the_threads(config, short_judge):
    first = evaluate(march, TASK, config, judge=short_judge, num_threads=1)
    again = evaluate(march, TASK, config, judge=short_judge, num_threads=2)
    assert first == again


def test_settings_of_the_run_cannot_ease_the_evaluation(config, short_judge):
    eased = dataclasses.replace(
        config,
        noise=True,
        domain_randomization=True,
        episode_length_s=0.5,
        terminations={"time_out": config.terminations["time_out"]},
        events={},
        commands={
            **config.commands,
            "velocity": dataclasses.replace(
                config.commands["velocity"],
                params={"lin_vel_x": [0, 0], "lin_vel_y": [0, 0], "ang_vel_yaw": [0, 0]},
            ),
        },
    )
    for policy in (stand, collapse):
        plain = evaluate(policy, TASK, config, judge=short_judge)
        assert evaluate(policy, TASK, eased, judge=short_judge) == plain


def test_an_open_loop_trot_scores_as_stored(config, short_judge):
    """Frozen figures: physics, commands, starts and errors together."""
    fast = evaluate(march, TASK, config, judge=short_judge)
    reference = evaluate(march, TASK, config, "reference", judge=short_judge)
    # Wide enough for another machine's rounding of a contact, narrow enough for a changed rule.
    assert fast.error_vel_xy == pytest.approx(0.834, abs=0.05)
    assert fast.error_vel_yaw == pytest.approx(0.815, abs=0.05)
    assert fast.mean_reward == pytest.approx(1.87, abs=0.1)
    assert reference.error_vel_xy == pytest.approx(0.919, abs=0.05)
    assert reference.error_vel_yaw == pytest.approx(0.922, abs=0.05)
    assert (fast.fall_rate, reference.fall_rate) == (0.0, 0.0)


def test_a_task_without_the_command_is_refused(config, short_judge):
    judge = dataclasses.replace(short_judge, command="speed")
    with pytest.raises(ValueError, match=r"env\.commands\.speed: missing"):
        evaluate(stand, TASK, config, judge=judge)
