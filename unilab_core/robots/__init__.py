"""Robot models: one folder each with its MJCF and its constants.

robot.py      RobotModel: how a folder's MJCF becomes an MjModel for training or for rendering
go2/          Unitree Go2, 12 joints
"""
