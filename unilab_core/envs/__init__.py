"""Environments: Manager-Based ones, and those of Gymnasium.

factory.py            make_env: task + backend + settings -> Env
manager_based.py      ManagerBasedEnv: the step, in order; owns all arrays
gym_env.py            GymEnv: any continuous-control id of Gymnasium
robot_state.py        what physics says about the robots, once per step, as float32 columns
term_view.py          TermView: everything a term may read, for all environments or some rows
managers/             one manager per kind of term
mdp/                  the terms: free functions on NumPy arrays
"""

from unilab_core.envs.factory import make_env

__all__ = ["make_env"]
