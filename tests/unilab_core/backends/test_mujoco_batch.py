"""The mujoco backend against plain mj_step, one simulation at a time."""

import mujoco
import numpy as np
import pytest

from unilab_core.backends.mujoco_batch import MujocoBackend
from unilab_core.backends.registry import make_backend
from unilab_core.robots.go2.constants import GO2
from unilab_core.robots.robot import build_model


@pytest.fixture(scope="module")
def model():
    return build_model(GO2, "fast", 0.01)


def controls(model, step, num_envs):
    draw = np.random.default_rng(step).uniform(-0.3, 0.3, (num_envs, model.nu))
    return model.key_ctrl[0] + draw


@pytest.mark.parametrize("num_threads", [1, 2])
def test_it_computes_what_mj_step_computes(model, num_threads):
    backend = MujocoBackend(model, 3, num_threads)
    singles = [mujoco.MjData(model) for _ in range(3)]
    for data in singles:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    for step in range(10):
        ctrl = controls(model, step, 3)
        backend.ctrl[:] = ctrl
        backend.step(2)
        for data, row in zip(singles, ctrl, strict=True):
            data.ctrl[:] = row
            mujoco.mj_step(model, data, 2)
    np.testing.assert_array_equal(backend.qpos, [data.qpos for data in singles])
    np.testing.assert_array_equal(backend.qvel, [data.qvel for data in singles])
    np.testing.assert_array_equal(backend.sensordata, [data.sensordata for data in singles])
    backend.close()


def test_a_reset_row_forgets_everything_and_leaves_the_others(model):
    """A reset simulation goes on bit for bit like one that never did anything else."""
    used, fresh = MujocoBackend(model, 2, 1), MujocoBackend(model, 2, 1)
    for step in range(20):
        used.ctrl[:] = controls(model, step, 2)
        used.step(2)
    other = used.qpos[0].copy()
    used.reset_rows(np.array([1]))
    np.testing.assert_array_equal(used.qpos[0], other)
    np.testing.assert_array_equal(used.qpos[1], model.key_qpos[0])
    assert (used.qvel[1] == 0.0).all()
    for step in range(20):
        used.ctrl[:] = fresh.ctrl[:] = controls(model, 100 + step, 2)
        used.step(2)
        fresh.step(2)
    np.testing.assert_array_equal(used.qpos[1], fresh.qpos[1])
    np.testing.assert_array_equal(used.qvel[1], fresh.qvel[1])


def test_sensors_lag_a_substep_after_step_and_are_current_after_forward(model):
    backend = MujocoBackend(model, 2, 1)
    backend.qvel[:, 5] = 1.0  # yaw rate: gyro z
    address = int(model.sensor_adr[model.sensor("gyro").id]) + 2
    backend.step(1)
    assert backend.sensordata[:, address] == pytest.approx([1.0, 1.0])
    assert backend.qvel[0, 5] != 1.0
    backend.forward_rows(np.array([1]))
    assert backend.sensordata[0, address] == pytest.approx(1.0)
    assert backend.sensordata[1, address] == pytest.approx(backend.qvel[1, 5], rel=1e-9)


def test_model_fields_differ_by_simulation(model):
    backend = MujocoBackend(model, 2, 1)
    gain = backend.model_field("actuator_gainprm")
    bias = backend.model_field("actuator_biasprm")
    gain[1, :, 0], bias[1, :, 1] = 70.0, -70.0
    for step in range(5):
        backend.ctrl[:] = controls(model, step, 1)
        backend.step(2)
    assert (backend.qpos[0, 7:] != backend.qpos[1, 7:]).any()
    plain = MujocoBackend(model, 1, 1)
    for step in range(5):
        plain.ctrl[:] = controls(model, step, 1)
        plain.step(2)
    np.testing.assert_array_equal(plain.qpos[0], backend.qpos[0])


def test_a_state_that_is_not_finite_stays_visible_and_alone(model):
    backend = MujocoBackend(model, 3, 1)
    backend.qvel[1, 3] = np.nan
    backend.step(2)
    bad = ~np.isfinite(backend.qvel).all(axis=1)
    if backend.failed is not None:
        bad |= backend.failed
    assert bad.tolist() == [False, True, False]
    backend.reset_rows(np.array([1]))
    backend.step(2)
    assert np.isfinite(backend.qpos).all()
    assert backend.failed is None


def test_warnings_of_the_engine_leave_no_file(model, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    backend = MujocoBackend(model, 64, 2)
    backend.qvel[:, 7] = np.nan
    backend.step(2)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().err == ""


def test_sizes_and_names_are_checked(model):
    with pytest.raises(ValueError, match="num_envs, num_threads: got 0, 1"):
        MujocoBackend(model, 0, 1)
    with pytest.raises(ValueError, match=r"unknown backend 'mujocoo'.*mujoco"):
        make_backend("mujocoo", model, 1, 1)
