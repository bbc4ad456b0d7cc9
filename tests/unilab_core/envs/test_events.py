"""Event terms on real simulations, and when the manager calls them."""

import dataclasses

import numpy as np
import pytest

from unilab_core.backends.mujoco_batch import MujocoBackend
from unilab_core.config.env import EventTermConfig
from unilab_core.envs.managers.event import NullEventManager, make_event_manager
from unilab_core.envs.mdp import events
from unilab_core.envs.mdp.events import EventContext
from unilab_core.robots.go2.constants import GO2
from unilab_core.robots.robot import build_model

NUM_ENVS = 200
EVERYONE = np.arange(NUM_ENVS)


@pytest.fixture
def context():
    model = build_model(GO2, "fast", 0.01)
    return EventContext(
        num_envs=NUM_ENVS,
        step_dt_s=0.02,
        backend=MujocoBackend(model, NUM_ENVS, 1),
        model=model,
        robot=GO2,
        rng=np.random.default_rng(0),
    )


def test_reset_root_state_fills_its_ranges_and_keeps_the_robot_level(context):
    events.reset_root_state(
        context,
        EVERYONE,
        position_xy_m=0.5,
        yaw_rad=np.pi,
        linear_velocity=0.5,
        angular_velocity=0.25,
    )
    qpos, qvel = context.backend.qpos, context.backend.qvel
    assert 0.45 < np.abs(qpos[:, :2]).max() <= 0.5
    assert (qpos[:, 2] == 0.32).all()
    assert (qpos[:, 4:6] == 0.0).all()
    np.testing.assert_allclose(np.linalg.norm(qpos[:, 3:7], axis=1), 1.0)
    yaw = 2.0 * np.arctan2(qpos[:, 6], qpos[:, 3])
    assert yaw.min() < -2.8
    assert yaw.max() > 2.8
    assert 0.45 < np.abs(qvel[:, :3]).max() <= 0.5
    assert 0.22 < np.abs(qvel[:, 3:6]).max() <= 0.25
    assert (qvel[:, 6:] == 0.0).all()
    np.testing.assert_array_equal(qpos[:, 7:], np.tile(GO2.default_joint_pos_rad, (NUM_ENVS, 1)))


def test_pd_gains_vary_by_joint_around_the_nominal_ones(context):
    ids = np.array([1, 3])
    events.randomize_pd_gains(context, ids, kp_factor=(0.9, 1.1), kd_factor=(0.9, 1.1))
    gain = context.backend.model_field("actuator_gainprm")
    bias = context.backend.model_field("actuator_biasprm")
    kp, kd = gain[ids, :, 0], -bias[ids, :, 2]
    # 35 x [.9, 1.1] and .5 x [.9, 1.1]
    assert (kp >= 31.5).all()
    assert (kp <= 38.5).all()
    assert (kd >= 0.45).all()
    assert (kd <= 0.55).all()
    assert len(np.unique(kp)) == 24
    np.testing.assert_array_equal(bias[ids, :, 1], -kp)
    assert (gain[[0, 2], :, 0] == 35.0).all()


def test_drawing_gains_again_starts_from_the_nominal_ones(context):
    for _ in range(50):
        events.randomize_pd_gains(context, EVERYONE, kp_factor=(0.9, 1.1), kd_factor=(0.9, 1.1))
    kp = context.backend.model_field("actuator_gainprm")[:, :, 0]
    assert (kp >= 31.5).all()
    assert (kp <= 38.5).all()


def test_added_mass_scales_the_inertia_and_reaches_derived_quantities(context):
    events.randomize_body_mass(context, EVERYONE, body="base", added_kg=(-1.5, 1.5))
    index = context.model.body("base").id
    mass = context.backend.model_field("body_mass")[:, index]
    inertia = context.backend.model_field("body_inertia")[:, index]
    assert mass.min() >= 6.921 - 1.5
    assert mass.max() <= 6.921 + 1.5
    assert np.ptp(mass) > 2.5
    np.testing.assert_allclose(inertia[:, 0] / 0.107027, mass / 6.921)
    total = context.backend.model_field("body_subtreemass")[:, index]
    np.testing.assert_allclose(total, mass + 15.206408 - 6.921)


def test_centre_of_mass_moves_along_the_given_axes_only(context):
    offset = ((-0.05, 0.05), (0.0, 0.0), (0.0, 0.0))
    events.randomize_body_com(context, EVERYONE, body="base", offset_m=offset)
    index = context.model.body("base").id
    moved = context.backend.model_field("body_ipos")[:, index] - context.model.body_ipos[index]
    assert 0.045 < np.abs(moved[:, 0]).max() <= 0.05 + 1e-12
    assert (np.abs(moved[:, 1:]) < 1e-12).all()


def test_friction_is_one_number_per_robot_for_all_feet(context):
    events.randomize_friction(context, EVERYONE, geoms="feet", sliding=(0.4, 1.0))
    columns = [context.model.geom(name).id for name in GO2.foot_geoms]
    sliding = context.backend.model_field("geom_friction")[:, columns, 0]
    assert (sliding == sliding[:, :1]).all()
    assert 0.4 <= sliding.min() < 0.45
    assert 0.95 < sliding.max() <= 1.0
    torsional = context.backend.model_field("geom_friction")[:, columns, 1]
    assert (torsional == 0.02).all()


def test_a_push_changes_the_velocity_of_the_base(context):
    context.backend.qvel[:, 0] = 1.0
    events.push(context, np.array([0, 1]), velocity=(1.0, 1.0, 0.5))
    change = context.backend.qvel[:, :3] - [1.0, 0.0, 0.0]
    assert (change[:2] != 0.0).all()
    assert (np.abs(change[:2]) <= [1.0, 1.0, 0.5]).all()
    assert (change[2:] == 0.0).all()


def push_config(**changes):
    return EventTermConfig(
        function="push",
        mode="interval",
        interval_s=(0.1, 0.1),
        params={"velocity": [1.0, 1.0, 1.0]},
        **changes,
    )


def test_interval_events_come_once_per_interval_in_each_environment(context):
    manager = make_event_manager({"push": push_config()}, context, domain_randomization=False)
    pushed = np.zeros(NUM_ENVS, int)
    for step in range(1, 11):  # 10 steps of .02 s: two intervals
        before = context.backend.qvel.copy()
        manager.interval()
        pushed += (context.backend.qvel != before).any(axis=1)
        if step == 5:
            assert (pushed == 1).all()
    assert (pushed == 2).all()


def test_first_pushes_are_spread_over_the_interval(context):
    manager = make_event_manager({"push": push_config()}, context, domain_randomization=False)
    manager.interval()
    share = (context.backend.qvel != 0.0).any(axis=1).mean()
    assert 0.08 < share < 0.35  # one of five steps


def test_domain_randomisation_runs_only_where_it_is_on(context):
    terms = {"push": push_config(domain_randomization=True)}
    off = make_event_manager(terms, context, domain_randomization=False)
    assert isinstance(off, NullEventManager)
    off.startup()
    off.interval()
    off.reset(EVERYONE)
    assert (context.backend.qvel == 0.0).all()
    on = make_event_manager(terms, context, domain_randomization=True)
    for _ in range(5):
        on.interval()
    assert (context.backend.qvel != 0.0).any(axis=1).all()


def test_go2_with_domain_randomisation_differs_by_robot_and_runs(build_go2, go2_config):
    env = build_go2(num_envs=4, domain_randomization=True, noise=True)
    env.reset()
    mass = env.backend.model_field("body_mass")[:, 1]
    assert len(np.unique(mass)) == 4
    for _ in range(20):
        result = env.step(np.zeros((4, 12), np.float32))
    assert np.isfinite(result.obs).all()
    names = [name for name, term in go2_config.events.items() if term.domain_randomization]
    assert names == ["base_mass", "base_com", "foot_friction", "push"]


def test_an_interval_belongs_to_interval_events():
    with pytest.raises(ValueError, match="interval_s: belongs to mode interval"):
        EventTermConfig(function="push", mode="reset", interval_s=(1.0, 2.0))
    with pytest.raises(ValueError, match="interval_s: belongs to mode interval"):
        dataclasses.replace(push_config(), interval_s=None)
