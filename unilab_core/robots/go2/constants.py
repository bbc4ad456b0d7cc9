"""Unitree Go2: names and default pose, legs in the order FL, FR, RL, RR (hip, thigh, calf)."""

from pathlib import Path

from unilab_core.robots.robot import RobotModel

LEGS = ("FL", "FR", "RL", "RR")

GO2 = RobotModel(
    name="go2",
    xml_path=Path(__file__).with_name("go2.xml"),
    base_body="base",
    imu_site="imu",
    joint_names=tuple(f"{leg}_{part}_joint" for leg in LEGS for part in ("hip", "thigh", "calf")),
    default_joint_pos_rad=(0.0, 0.8, -1.5, 0.0, 0.8, -1.5, 0.0, 1.0, -1.5, 0.0, 1.0, -1.5),
    home_height_m=0.32,
    foot_geoms=tuple(f"{leg}_foot" for leg in LEGS),
    foot_position_sensors=tuple(f"{leg}_foot_pos" for leg in LEGS),
    foot_touch_sensors=tuple(f"{leg}_foot_touch" for leg in LEGS),
    mirror_joints=(3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8),
    mirror_signs=(-1.0, 1.0, 1.0) * 4,
    mirror_feet=(1, 0, 3, 2),
)
