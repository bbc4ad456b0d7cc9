"""The Go2 model against the published numbers, written out again here."""

import math

import mujoco
import numpy as np
import pytest

from unilab_core.robots.go2.constants import GO2
from unilab_core.robots.robot import build_model

SIM_DT_S = 0.01
LEGS = ("FL", "FR", "RL", "RR")


@pytest.fixture(scope="module")
def model():
    return build_model(GO2, "fast", SIM_DT_S)


@pytest.fixture(scope="module")
def drawn():
    return build_model(GO2, "fast", SIM_DT_S, visuals=True)


@pytest.fixture(scope="module")
def reference():
    return build_model(GO2, "reference", SIM_DT_S)


def home_data(model, height_m=None):
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    if height_m is not None:
        data.qpos[2] = height_m
    mujoco.mj_forward(model, data)
    return data


def test_masses_add_up_to_the_robot(model):
    # 6.921 + 4 x (.678 + 1.152 + .241352)
    assert model.body_mass.sum() == pytest.approx(15.206408)
    assert model.body("base").mass[0] == 6.921


def test_inertias_are_the_published_principal_moments(model):
    assert model.body("base").inertia == pytest.approx([0.107027, 0.0980771, 0.0244531])
    for leg in LEGS:
        assert model.body(f"{leg}_hip").inertia == pytest.approx(
            [0.00088403, 0.000596003, 0.000479967]
        )
        assert model.body(f"{leg}_thigh").inertia == pytest.approx(
            [0.00594973, 0.00584149, 0.000878787]
        )
        assert model.body(f"{leg}_calf").inertia == pytest.approx(
            [0.0014901, 0.00146356, 5.31397e-05]
        )


def test_left_and_right_mirror_each_other(model):
    """The inertia of a mirrored link is the mirrored inertia: xy and yz change sign."""
    data = home_data(model)
    for left, right in (("FL", "FR"), ("RL", "RR")):
        for part in ("hip", "thigh", "calf"):
            a, b = model.body(f"{left}_{part}").id, model.body(f"{right}_{part}").id
            mirror = np.diag([1.0, -1.0, 1.0])
            tensors = []
            for body in (a, b):
                rotation = data.ximat[body].reshape(3, 3)
                tensors.append(rotation @ np.diag(model.body_inertia[body]) @ rotation.T)
            np.testing.assert_allclose(mirror @ tensors[0] @ mirror, tensors[1], atol=2e-5)
            np.testing.assert_allclose(mirror @ data.xipos[a], data.xipos[b], atol=1e-12)


def test_joints_and_actuators_are_in_leg_order(model):
    expected = [f"{leg}_{part}_joint" for leg in LEGS for part in ("hip", "thigh", "calf")]
    assert [model.joint(i).name for i in range(1, model.njnt)] == expected
    assert [model.joint(int(i)).name for i in model.actuator_trnid[:, 0]] == expected
    assert list(GO2.joint_names) == expected


def test_joint_ranges_are_the_published_ones(model):
    thigh = {"F": (-1.5708, 3.4907), "R": (-0.5236, 4.5379)}
    for leg in LEGS:
        assert tuple(model.joint(f"{leg}_hip_joint").range) == (-1.0472, 1.0472)
        assert tuple(model.joint(f"{leg}_thigh_joint").range) == thigh[leg[0]]
        assert tuple(model.joint(f"{leg}_calf_joint").range) == (-2.7227, -0.83776)


def test_torques_gains_and_joint_constants(model):
    assert model.actuator_forcerange[:, 1].tolist() == [23.7, 23.7, 45.43] * 4
    assert (model.actuator_forcerange[:, 0] == -model.actuator_forcerange[:, 1]).all()
    assert (model.actuator_gainprm[:, 0] == 35.0).all()
    assert (model.actuator_biasprm[:, :3] == [0.0, -35.0, -0.5]).all()
    # All damping comes from the position actuator.
    assert (model.dof_damping == 0.0).all()
    assert (model.dof_armature[6:] == 0.01).all()
    assert (model.dof_frictionloss[6:] == 0.2).all()


def test_solver_settings_of_both_kinds_of_physics(model, reference):
    for built in (model, reference):
        assert built.opt.timestep == SIM_DT_S
        assert built.opt.integrator == mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        assert built.opt.solver == mujoco.mjtSolver.mjSOL_NEWTON
        assert built.opt.iterations == 10
        assert built.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_AUTORESET
    assert model.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL
    assert model.opt.impratio == 1.0
    assert (model.geom_condim == 3).all()
    assert reference.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC
    assert reference.opt.impratio == 100.0
    assert [reference.geom(f"{leg}_foot").condim[0] for leg in LEGS] == [6] * 4


def test_fast_physics_has_seven_geoms_and_only_the_floor_can_be_touched(model):
    names = [model.geom(i).name for i in range(model.ngeom)]
    assert names == ["floor", "base_box", "head_sphere", *(f"{leg}_foot" for leg in LEGS)]
    assert (model.geom_contype[0], model.geom_conaffinity[0]) == (1, 0)
    assert (model.geom_contype[1:] == 0).all()
    assert (model.geom_conaffinity[1:] == 1).all()


def test_feet_have_the_published_sphere_and_friction(model):
    for leg in LEGS:
        foot = model.geom(f"{leg}_foot")
        assert foot.size[0] == 0.022
        assert foot.pos == pytest.approx([-0.002, 0.0, -0.213])
        assert foot.friction == pytest.approx([0.6, 0.02, 0.01])
        assert foot.priority[0] == 1


def test_home_pose_puts_the_feet_where_the_leg_geometry_says(model):
    # Calf pitch is thigh + calf angle: .8 - 1.5 = -.7 in front, 1.0 - 1.5 = -.5 behind.
    # Foot centre: base - .213 cos(thigh) + (x sin -> .002 sin(pitch)) - .213 cos(pitch).
    front = 0.32 - 0.213 * math.cos(0.8) + 0.002 * math.sin(-0.7) - 0.213 * math.cos(-0.7)
    rear = 0.32 - 0.213 * math.cos(1.0) + 0.002 * math.sin(-0.5) - 0.213 * math.cos(-0.5)
    data = home_data(model)
    heights = [data.sensor(name).data[2] for name in GO2.foot_position_sensors]
    assert heights == pytest.approx([front, front, rear, rear], abs=1e-9)
    # Hips .1934 m from the middle, feet .142 m out of it.
    assert data.sensor("FL_foot_pos").data[1] == pytest.approx(0.0465 + 0.0955)
    assert data.sensor("RR_foot_pos").data[1] == pytest.approx(-0.0465 - 0.0955)


def test_home_pose_matches_the_constants(model):
    assert model.key_qpos[0, 2] == GO2.home_height_m
    assert model.key_qpos[0, 7:].tolist() == list(GO2.default_joint_pos_rad)
    assert model.key_ctrl[0].tolist() == list(GO2.default_joint_pos_rad)


def test_nothing_collides_in_the_air(reference):
    assert home_data(reference, height_m=1.0).ncon == 0


def test_legs_collide_only_under_reference_physics(model, reference):
    for built, expected in ((model, False), (reference, True)):
        data = home_data(built, height_m=1.0)
        # Both front hips turned inwards by a radian: the feet cross under the body.
        data.qpos[7], data.qpos[10] = -1.0, 1.0
        mujoco.mj_forward(built, data)
        assert (data.ncon > 0) == expected


def test_no_mesh_is_needed(drawn):
    assert drawn.nmesh == 0
    assert drawn.ngeom > 60
    assert "mesh" not in GO2.xml_path.read_text().replace("mesh-free", "")


def test_visual_geoms_do_not_change_physics(model, drawn):
    states = []
    for built in (model, drawn):
        data = home_data(built)
        rng = np.random.default_rng(0)
        for _ in range(50):
            data.ctrl[:] = built.key_ctrl[0] + rng.uniform(-0.3, 0.3, 12)
            mujoco.mj_step(built, data)
        states.append(data.qpos.copy())
    np.testing.assert_array_equal(states[0], states[1])


def test_the_robot_stands_in_its_default_pose(model):
    data = home_data(model)
    data.ctrl[:] = model.key_ctrl[0]
    for _ in range(200):
        mujoco.mj_step(model, data)
    assert 0.27 < data.qpos[2] < 0.33
    assert abs(data.qpos[3]) > 0.99
    assert np.abs(data.qvel).max() < 0.05
    # The feet carry the robot: 15.206 kg x 9.81.
    force = sum(data.sensor(name).data[0] for name in GO2.foot_touch_sensors)
    assert force == pytest.approx(15.206408 * 9.81, rel=0.02)


def test_unknown_physics_is_refused():
    with pytest.raises(ValueError, match="physics: got 'exact'"):
        build_model(GO2, "exact", SIM_DT_S)
