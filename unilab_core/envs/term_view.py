"""TermView: what a term may read.

The same term runs for all environments in every step and for the few that were just reset; both
times it sees a TermView, whose arrays have `num_envs` rows. Terms must not keep or write them.
"""

from dataclasses import dataclass

from unilab_core.contracts import FloatArray, IdArray
from unilab_core.envs.robot_state import RobotState

StepArray = IdArray


@dataclass(kw_only=True, slots=True)
class TermView:
    """Rows of all environments, or of some."""

    num_envs: int
    step_dt_s: float
    max_episode_steps: int
    robot: RobotState
    action: FloatArray  # [E, A], of this step, after clipping
    previous_action: FloatArray  # [E, A]
    commands: dict[str, FloatArray]  # name -> [E, w]
    episode_steps: StepArray  # [E], control steps since the reset
