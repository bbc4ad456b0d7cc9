"""Unitree Go2: go2.xml (mesh-free MJCF), constants.py (names, default pose)."""
