"""What physics says about the robots, read once per step into float32 columns.

Positions and velocities are those of the present instant. From them follow exactly: angular
velocity, gravity's direction and the velocity of the IMU in the IMU's frame (the same numbers as
MuJoCo's gyro, frame and velocimeter sensors give for this state). Foot heights and contact forces
come from sensors and describe the start of the last physics substep.

    R = rotation of the base; each entry is a sum of products of two quaternion components
    gravity = -R^T e_z
    v_imu = R^T v_base + omega x r_imu

Sums of products over E columns are matrix products, so that all of it takes six NumPy calls.
"""

# pyright: reportAttributeAccessIssue=false
# (names of the compiled part of mujoco have no stubs)

from dataclasses import dataclass

import mujoco
import numpy as np

from unilab_core.contracts import Backend, BoolArray, FloatArray, IdArray, PhysicsArray
from unilab_core.envs.columns import padded
from unilab_core.robots.robot import RobotModel

FREE_JOINT_QPOS = 7
FREE_JOINT_QVEL = 6
MAX_ABS_VALUE = 1.0e4
"""Beyond this a height (m) or a velocity (m/s, rad/s) means that the simulation ran away."""


@dataclass(kw_only=True, slots=True, frozen=True)
class RobotLayout:
    """Where the quantities of one robot lie in the arrays of its physics model."""

    num_joints: int
    num_sensor_values: int
    default_joint_pos_rad: FloatArray  # [J, 1]
    imu_lever_m: FloatArray  # [3, 3]: times omega gives omega x r_imu
    foot_height_columns: slice
    foot_force_columns: slice

    @classmethod
    def of(cls, robot: RobotModel, model: mujoco.MjModel) -> "RobotLayout":
        """Look all names up once; a robot whose order differs from its model is an error."""
        _check_order(robot, model)
        heights = [_sensor_address(model, name) + 2 for name in robot.foot_position_sensors]
        forces = [_sensor_address(model, name) for name in robot.foot_touch_sensors]
        x, y, z = model.site_pos[model.site(robot.imu_site).id]
        return cls(
            num_joints=len(robot.joint_names),
            num_sensor_values=model.nsensordata,
            default_joint_pos_rad=np.array(robot.default_joint_pos_rad, np.float32)[:, None],
            imu_lever_m=np.array([[0, z, -y], [-z, 0, x], [y, -x, 0]], np.float32),
            foot_height_columns=_regular_slice(heights),
            foot_force_columns=_regular_slice(forces),
        )


class RobotState:
    """Columns for `num_rows` robots; views of fixed buffers that `load` refills.

    Shapes: `J` joints, `F` feet.
    """

    def __init__(self, layout: RobotLayout, num_rows: int) -> None:
        self._layout = layout
        width = padded(num_rows)
        positions = FREE_JOINT_QPOS + layout.num_joints
        velocities = FREE_JOINT_QVEL + layout.num_joints
        state = np.zeros((positions + velocities, width), np.float32)
        sensors = np.zeros((layout.num_sensor_values, width), np.float32)
        self._flat_state = state.ravel()
        self._state = state[:, :num_rows]
        self._sensors = sensors[:, :num_rows]
        self._qpos, self._qvel = self._state[:positions], self._state[positions:]
        self._joints = self._qpos[FREE_JOINT_QPOS:]
        self._quat = state[3:7]
        self._lin_vel_w = self._qvel[:3]
        self._ang_vel = self._qvel[3:6]
        # Row 0 of the products is q_w times q, row 1 q_x times q, ...
        self._products = np.zeros((4, 4, width), np.float32)
        self._directions = np.zeros((12, width), np.float32)
        self._rotation_t = self._directions[3:].reshape(3, 3, width)[:, :, :num_rows]
        self._summands = np.zeros((3, 3, width), np.float32)[:, :, :num_rows]
        self._lin_vel = np.zeros((3, width), np.float32)[:, :num_rows]

        self.base_height: FloatArray = self._qpos[2]  # [E], m
        self.joint_pos_rel: FloatArray = self._joints.T  # [E, J], rad from the default pose
        self.joint_vel: FloatArray = self._qvel[FREE_JOINT_QVEL:].T  # [E, J], rad/s
        self.ang_vel_b: FloatArray = self._ang_vel.T  # [E, 3], rad/s
        self.lin_vel_b: FloatArray = self._lin_vel.T  # [E, 3], m/s, of the IMU
        self.gravity_b: FloatArray = self._directions[:3, :num_rows].T  # [E, 3], unit vector
        self.foot_height: FloatArray = self._sensors[layout.foot_height_columns].T  # [E, F], m
        self.foot_force: FloatArray = self._sensors[layout.foot_force_columns].T  # [E, F], N

    def load(self, backend: Backend) -> BoolArray | None:
        """Read every robot; returns which simulations are beyond use, None when all are sound.

        Rows of such simulations are cleared, so that no term meets a number that is not finite.
        """
        self._copy(backend.qpos, backend.qvel, backend.sensordata)
        low, high = np.minimum.reduce(self._flat_state), np.maximum.reduce(self._flat_state)
        sound = low > -MAX_ABS_VALUE and high < MAX_ABS_VALUE  # false where there is a NaN
        unstable = None
        if not sound or backend.failed is not None:
            unstable = self._clear_unstable(backend.failed)
        self._derive()
        return unstable

    def load_rows(self, backend: Backend, ids: IdArray) -> None:
        """Read the robots `ids` only, in that order."""
        self._copy(backend.qpos[ids], backend.qvel[ids], backend.sensordata[ids])
        self._derive()

    def _copy(self, qpos: PhysicsArray, qvel: PhysicsArray, sensordata: PhysicsArray) -> None:
        np.copyto(self._qpos.T, qpos, casting="same_kind")
        np.copyto(self._qvel.T, qvel, casting="same_kind")
        np.copyto(self._sensors.T, sensordata, casting="same_kind")

    def _clear_unstable(self, failed: BoolArray | None) -> BoolArray | None:
        # The place on the plane is no sign of trouble; NaN compares false.
        sound: BoolArray = np.abs(self._state[2:]) < MAX_ABS_VALUE
        unstable: BoolArray = ~np.logical_and.reduce(sound, axis=0)
        if failed is not None:
            unstable |= failed
        if not unstable.any():
            return None
        self._state[:, unstable] = 0.0
        self._quat[0, : len(unstable)][unstable] = 1.0
        self._sensors[:, unstable] = 0.0
        return unstable

    def _derive(self) -> None:
        """The equations of the module docstring."""
        np.subtract(self._joints, self._layout.default_joint_pos_rad, out=self._joints)
        quat = self._quat
        np.multiply(quat[:, None], quat, out=self._products)
        np.dot(_DIRECTIONS, self._products.reshape(16, -1), out=self._directions)
        np.multiply(self._rotation_t, self._lin_vel_w, out=self._summands)
        np.add.reduce(self._summands, axis=1, out=self._lin_vel)
        lever = np.dot(self._layout.imu_lever_m, self._ang_vel)
        np.add(self._lin_vel, lever, out=self._lin_vel)


# Entries of R in signed products of two components of the unit quaternion (w, x, y, z).
_ROTATION = (
    ("+ww+xx-yy-zz", "+xy+xy-wz-wz", "+xz+xz+wy+wy"),
    ("+xy+xy+wz+wz", "+ww-xx+yy-zz", "+yz+yz-wx-wx"),
    ("+xz+xz-wy-wy", "+yz+yz+wx+wx", "+ww-xx-yy+zz"),
)


def _direction_coefficients() -> FloatArray:
    """[12, 16]: products q_a q_b (column 4 a + b) -> gravity (3 rows), then R^T (9 rows)."""
    table = np.zeros((4, 3, 16), np.float32)
    for row, entries in enumerate(_ROTATION):
        for column, entry in enumerate(entries):
            for sign, a, b in zip(entry[::3], entry[1::3], entry[2::3], strict=True):
                product = 4 * "wxyz".index(a) + "wxyz".index(b)
                table[1 + column, row, product] += 1.0 if sign == "+" else -1.0
    table[0] = -table[1:, 2]
    return table.reshape(12, 16)


_DIRECTIONS = _direction_coefficients()


def _check_order(robot: RobotModel, model: mujoco.MjModel) -> None:
    """Joints follow the free joint in the robot's order, and actuators drive them in that order."""
    joints = tuple(model.joint(i).name for i in range(1, model.njnt))
    if model.jnt_type[0] != mujoco.mjtJoint.mjJNT_FREE or joints != robot.joint_names:
        raise ValueError(f"{robot.name}: joints are {joints}, expected {robot.joint_names}")
    driven = tuple(model.joint(int(i)).name for i in model.actuator_trnid[:, 0])
    if driven != robot.joint_names:
        raise ValueError(f"{robot.name}: actuators drive {driven}, expected {robot.joint_names}")


def _sensor_address(model: mujoco.MjModel, name: str) -> int:
    return int(model.sensor_adr[model.sensor(name).id])


def _regular_slice(columns: list[int]) -> slice:
    """Evenly spaced columns as a slice: a view instead of a gather."""
    step = columns[1] - columns[0] if len(columns) > 1 else 1
    found = slice(columns[0], columns[-1] + 1, step)
    if list(range(found.start, found.stop, found.step)) != columns:
        raise ValueError(f"sensor columns {columns} are not evenly spaced")
    return found
