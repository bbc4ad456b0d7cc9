"""Physics backends behind `unilab_core.contracts.Backend`.

mujoco_batch.py   `mujoco`: MuJoCo's C++ thread pool over many simulations of one model
registry.py       backend names and their constructors
"""
