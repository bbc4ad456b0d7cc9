"""Tasks: what a robot is asked to do, and how success is judged.

task.py                 Task: robot, backends, evaluation
registry.py             task ids
go2_joystick_flat.py    Go2 follows velocity commands on flat ground

The terms of a task (observations, rewards, ...) are settings: conf/env/<task>.yaml.
"""
