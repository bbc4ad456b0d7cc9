"""RobotState: hand-made poses, MuJoCo's own sensors, and simulations that broke."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from unilab_core.envs.robot_state import RobotLayout, RobotState
from unilab_core.robots.go2.constants import GO2
from unilab_core.robots.robot import build_model

HALF = np.sqrt(0.5)


@pytest.fixture(scope="module")
def model():
    return build_model(GO2, "fast", 0.01)


def arrays(model, num_rows):
    """A backend's arrays with every robot at rest in the home pose."""
    return SimpleNamespace(
        qpos=np.tile(model.key_qpos[0], (num_rows, 1)),
        qvel=np.zeros((num_rows, model.nv)),
        sensordata=np.zeros((num_rows, model.nsensordata)),
        failed=None,
    )


def loaded(model, backend):
    state = RobotState(RobotLayout.of(GO2, model), len(backend.qpos))
    unstable = state.load(backend)
    return state, unstable


def test_an_upright_robot_sees_gravity_straight_down(model):
    state, unstable = loaded(model, arrays(model, 2))
    assert unstable is None
    assert state.gravity_b == pytest.approx(np.array([[0.0, 0.0, -1.0]] * 2))
    assert state.base_height == pytest.approx([0.32, 0.32])
    assert (state.joint_pos_rel == 0.0).all()


def test_gravity_turns_with_the_robot(model):
    backend = arrays(model, 3)
    backend.qpos[0, 3:7] = [HALF, HALF, 0.0, 0.0]  # on its left side: roll +90 deg
    backend.qpos[1, 3:7] = [HALF, 0.0, HALF, 0.0]  # nose down: pitch +90 deg
    backend.qpos[2, 3:7] = [0.0, 1.0, 0.0, 0.0]  # on its back
    state, _ = loaded(model, backend)
    expected = [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    assert state.gravity_b == pytest.approx(np.array(expected), abs=1e-6)


def test_velocity_is_that_of_the_imu_in_its_own_frame(model):
    backend = arrays(model, 2)
    backend.qpos[:, 3:7] = [HALF, 0.0, 0.0, HALF]  # heading along world y
    backend.qvel[0, :3] = [1.0, 0.0, 0.5]  # world x is to the robot's right: body (0, -1, .5)
    backend.qvel[1, 5] = 2.0  # turning on the spot, with the IMU .02557 m behind the middle
    state, _ = loaded(model, backend)
    assert state.lin_vel_b[0] == pytest.approx([0.0, -1.0, 0.5], abs=1e-6)
    assert state.lin_vel_b[1] == pytest.approx([0.0, -2.0 * 0.02557, 0.0], abs=1e-6)
    assert state.ang_vel_b[1] == pytest.approx([0.0, 0.0, 2.0])


def test_kinematics_equal_mujocos_sensors(build_go2):
    env = build_go2(num_envs=8)
    env.reset()
    rng = np.random.default_rng(0)
    for _ in range(30):
        env.step(rng.normal(0.0, 1.5, (8, 12)).astype(np.float32))
    env.backend.forward_rows(np.arange(8))
    env.robot.load(env.backend)
    sensors = env.backend.sensordata
    np.testing.assert_allclose(env.robot.ang_vel_b, sensors[:, 0:3], atol=1e-5)
    np.testing.assert_allclose(env.robot.gravity_b, sensors[:, 3:6], atol=1e-6)
    np.testing.assert_allclose(env.robot.lin_vel_b, sensors[:, 6:9], atol=1e-5)
    feet = sensors[:, 9:21].reshape(8, 4, 3)
    np.testing.assert_allclose(env.robot.foot_height, feet[:, :, 2], atol=1e-6)
    np.testing.assert_allclose(env.robot.foot_force, sensors[:, 21:25], rtol=1e-5)


def test_rows_see_the_same_as_the_whole(model):
    backend = arrays(model, 5)
    rng = np.random.default_rng(1)
    backend.qpos[:, 7:] += rng.normal(0.0, 0.2, (5, 12))
    backend.qvel += rng.normal(0.0, 1.0, backend.qvel.shape)
    state, _ = loaded(model, backend)
    rows = RobotState(RobotLayout.of(GO2, model), 2)
    rows.load_rows(backend, np.array([3, 1]))
    for name in ("joint_pos_rel", "joint_vel", "lin_vel_b", "gravity_b", "base_height"):
        whole = getattr(state, name)
        np.testing.assert_array_equal(getattr(rows, name), whole[[3, 1]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, 2e4, -2e4])
@pytest.mark.parametrize("field", ["qvel", "qpos"])
def test_a_broken_simulation_is_found_and_cleared(model, field, value):
    backend = arrays(model, 3)
    getattr(backend, field)[1, 8] = value
    state, unstable = loaded(model, backend)
    assert unstable.tolist() == [False, True, False]
    for name in ("joint_pos_rel", "joint_vel", "ang_vel_b", "lin_vel_b", "gravity_b"):
        assert np.isfinite(getattr(state, name)).all(), name
    assert state.gravity_b[1] == pytest.approx([0.0, 0.0, -1.0])
    assert state.base_height[[0, 2]] == pytest.approx([0.32, 0.32])


def test_being_far_from_the_origin_is_no_fault(model):
    backend = arrays(model, 2)
    backend.qpos[1, :2] = [3.0e4, -5.0e4]
    _, unstable = loaded(model, backend)
    assert unstable is None


def test_what_the_engine_gave_up_on_counts_as_broken(model):
    backend = arrays(model, 2)
    backend.failed = np.array([True, False])
    _, unstable = loaded(model, backend)
    assert unstable.tolist() == [True, False]


def test_a_robot_whose_joint_order_differs_from_its_model_is_refused(model):
    names = list(GO2.joint_names)
    names[0], names[3] = names[3], names[0]
    with pytest.raises(ValueError, match="go2: joints are"):
        RobotLayout.of(dataclasses.replace(GO2, joint_names=tuple(names)), model)
