"""What physics says about the robots, read once per step into float32 columns.

Positions and velocities are those of the present instant. From them follow exactly: angular
velocity, gravity's direction and the velocity of the IMU in the IMU's frame (the same numbers as
MuJoCo's gyro, frame and velocimeter sensors give for this state). Foot heights and contact forces
come from sensors and describe the start of the last physics substep.

    R = rotation of the base (quaternion w, u);  for a world vector v:
    R^T v = v - w t + u x t,   t = 2 u x v
    v_imu = R^T v_base + omega x r_imu
"""

from dataclasses import dataclass

import mujoco
import numpy as np

from unilab_core.contracts import Backend, BoolArray, FloatArray, IdArray, PhysicsArray
from unilab_core.envs.columns import column_block
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
    imu_offset_m: FloatArray  # [5, 1]: x, y, z, x, y
    foot_height_columns: slice
    foot_force_columns: slice
    num_feet: int

    @classmethod
    def of(cls, robot: RobotModel, model: mujoco.MjModel) -> "RobotLayout":
        """Look all names up once; a robot whose order differs from its model is an error."""
        _check_order(robot, model)
        heights = [_sensor_address(model, name) + 2 for name in robot.foot_position_sensors]
        forces = [_sensor_address(model, name) for name in robot.foot_touch_sensors]
        imu = model.site_pos[model.site(robot.imu_site).id]
        return cls(
            num_joints=len(robot.joint_names),
            num_sensor_values=model.nsensordata,
            default_joint_pos_rad=np.array(robot.default_joint_pos_rad, np.float32)[:, None],
            imu_offset_m=np.array([*imu, *imu[:2]], np.float32)[:, None],
            foot_height_columns=_regular_slice(heights),
            foot_force_columns=_regular_slice(forces),
            num_feet=len(heights),
        )


class RobotState:
    """Columns for `num_rows` robots; views of fixed buffers that `load` refills.

    Shapes: `J` joints, `F` feet.
    """

    def __init__(self, layout: RobotLayout, num_rows: int) -> None:
        self._layout = layout
        joints = layout.num_joints
        positions, velocities = FREE_JOINT_QPOS + joints, FREE_JOINT_QVEL + joints
        total = positions + velocities + layout.num_sensor_values
        block = column_block(total, num_rows)
        self._qpos = block[:positions]
        self._qvel = block[positions : positions + velocities]
        self._sensors = block[positions + velocities :]
        # Everything from the height on: what a stable simulation keeps within bounds.
        self._checked = block[2:]
        self._joints = self._qpos[FREE_JOINT_QPOS:]
        self._gravity = column_block(3, num_rows)
        self._lin_vel = column_block(3, num_rows)
        self._axis, self._vector, self._turn, self._spin = (
            column_block(5, num_rows) for _ in range(4)
        )
        self._product = column_block(3, num_rows)

        self.base_height: FloatArray = self._qpos[2]  # [E], m
        self.joint_pos_rel: FloatArray = self._joints.T  # [E, J], rad from the default pose
        self.joint_vel: FloatArray = self._qvel[FREE_JOINT_QVEL:].T  # [E, J], rad/s
        self.ang_vel_b: FloatArray = self._qvel[3:6].T  # [E, 3], rad/s
        self.lin_vel_b: FloatArray = self._lin_vel.T  # [E, 3], m/s, of the IMU
        self.gravity_b: FloatArray = self._gravity.T  # [E, 3], unit vector
        self.foot_height: FloatArray = self._sensors[layout.foot_height_columns].T  # [E, F], m
        self.foot_force: FloatArray = self._sensors[layout.foot_force_columns].T  # [E, F], N

    def load(self, backend: Backend) -> BoolArray | None:
        """Read every robot; returns which simulations are beyond use, None when all are sound.

        Rows of such simulations are cleared, so that no term meets a non-finite number.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            self._copy(backend.qpos, backend.qvel, backend.sensordata)
            # One product decides for all: its root bounds every single value.
            squares = float(np.einsum("ij,ij->", self._checked, self._checked))
            unstable = None
            if not squares < MAX_ABS_VALUE**2 or backend.failed.any():
                unstable = self._find_unstable(backend.failed)
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

    def _find_unstable(self, failed: BoolArray) -> BoolArray | None:
        sound = (np.abs(self._checked) < MAX_ABS_VALUE).all(axis=0)  # NaN compares false
        unstable = failed | ~sound
        if not unstable.any():
            return None
        self._qpos[:, unstable] = 0.0
        self._qpos[3, unstable] = 1.0
        self._qvel[:, unstable] = 0.0
        self._sensors[:, unstable] = 0.0
        return unstable

    def _derive(self) -> None:
        np.subtract(self._joints, self._layout.default_joint_pos_rad, out=self._joints)
        self._derive_gravity()
        self._derive_lin_vel()

    def _derive_gravity(self) -> None:
        """-R^T e_z = -(2(xz - wy), 2(yz + wx), 1 - 2(x^2 + y^2))."""
        gravity, product = self._gravity, self._product
        w, xy, z = self._qpos[3], self._qpos[4:6], self._qpos[6]
        np.multiply(xy, z, out=gravity[:2])
        np.multiply(xy, w, out=product[:2])
        np.subtract(product[1], gravity[0], out=gravity[0])
        np.add(product[0], gravity[1], out=gravity[1])
        np.negative(gravity[1], out=gravity[1])
        np.multiply(xy, xy, out=product[:2])
        np.add(product[0], product[1], out=gravity[2])
        np.add(gravity, gravity, out=gravity)
        np.subtract(gravity[2], 1.0, out=gravity[2])

    def _derive_lin_vel(self) -> None:
        """Equations of the module docstring."""
        lin_vel, product = self._lin_vel, self._product
        axis, vector, turn, spin = self._axis, self._vector, self._turn, self._spin
        np.copyto(axis[:3], self._qpos[4:7])
        np.copyto(axis[3:], axis[:2])
        np.copyto(vector[:3], self._qvel[:3])
        np.copyto(vector[3:], vector[:2])
        np.copyto(spin[:3], self._qvel[3:6])
        np.copyto(spin[3:], spin[:2])
        _cross(axis, vector, turn[:3], product)
        np.add(turn[:3], turn[:3], out=turn[:3])
        np.copyto(turn[3:], turn[:2])
        _cross(axis, turn, lin_vel, product)
        np.multiply(turn[:3], self._qpos[3], out=turn[:3])
        np.subtract(lin_vel, turn[:3], out=lin_vel)
        np.add(lin_vel, vector[:3], out=lin_vel)
        _cross(spin, self._layout.imu_offset_m, turn[:3], product)
        np.add(lin_vel, turn[:3], out=lin_vel)


def _cross(a: FloatArray, b: FloatArray, out: FloatArray, product: FloatArray) -> None:
    """`out` = a x b for five-row operands (x, y, z, x, y): three passes, no gathering."""
    np.multiply(a[1:4], b[2:5], out=out)
    np.multiply(a[2:5], b[1:4], out=product)
    np.subtract(out, product, out=out)


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
