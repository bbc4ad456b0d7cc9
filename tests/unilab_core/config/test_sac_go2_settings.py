"""What SAC's files make of go2_joystick_flat: the published off-policy column is always at hand."""

from unilab_core.config.compose import compose

PUBLISHED = {
    "tracking_lin_vel": 1.0,
    "tracking_ang_vel": 0.2,
    "lin_vel_z": -5.0,
    "ang_vel_xy": -0.1,
    "base_height": -20.0,
    "action_rate": -0.02,
    "similar_to_default": -0.4,
    "contact": 1.5,
    "swing_feet_z": 4.0,
}


def env_of(*overrides):
    return compose("sac", "go2_joystick_flat", "mujoco", list(overrides)).env


def test_the_published_preset_is_the_off_policy_column():
    env = env_of("env.rewards_preset=published")
    assert {name: term.weight for name, term in env.rewards.items()} == PUBLISHED
    assert env.rewards["tracking_lin_vel"].params["sigma"] == 0.4
    assert env.rewards["tracking_ang_vel"].params["sigma"] == 0.4
    assert env.actions["joint_position"].params == {"scale": 0.4, "clip": [-1.0, 1.0]}
    assert env.rewards_preset == "published"


def test_the_default_preset_keeps_the_task_itself():
    """Rewards may be tuned; observations, commands, falls and physics are the task.

    The gait's phase is the same quantity in another encoding (docs/adr/0012).
    """
    default, published = env_of(), env_of("env.rewards_preset=published")
    assert default.rewards_preset == "default"
    for group, terms in default.observations.items():
        for name, term in terms.items():
            other = published.observations[group][name]
            if name == "gait_phase":
                assert (term.function, other.function) == ("phase_sin_cos", "phase_sines")
            else:
                assert term == other, (group, name)
    for section in ("commands", "terminations", "physics", "ctrl_dt", "sim_dt"):
        assert getattr(default, section) == getattr(published, section), section
    assert default.actions["joint_position"].params["clip"] == [-1.0, 1.0]
    assert list(default.observations["policy"]) == [
        "gyro",
        "projected_gravity",
        "joint_pos",
        "joint_vel",
        "last_action",
        "command",
        "gait_phase",
    ]


def test_a_reward_is_overridden_on_the_command_line():
    env = env_of("env.rewards.base_height.weight=-33", "env.rewards.contact=null")
    assert env.rewards["base_height"].weight == -33.0
    assert "contact" not in env.rewards
