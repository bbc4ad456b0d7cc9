"""Task: a robot, the backends that can simulate it, and how its policies are judged."""

from dataclasses import dataclass, replace

from unilab_core.config.env import (
    CommandTermConfig,
    EnvConfig,
    EventTermConfig,
    TerminationTermConfig,
)
from unilab_core.config.errors import ConfigError
from unilab_core.robots.robot import RobotModel


@dataclass(kw_only=True, slots=True, frozen=True)
class VelocityEvaluation:
    """Deterministic judgement of a velocity-tracking policy: every command, several starts.

    The commands are the product of the three axes. Starts, falls and thresholds belong to the task,
    not to the settings of a run: a score means the same for every algorithm and every version.
    """

    command: str
    """Command term that the grid replaces."""
    lin_vel_x: tuple[float, ...]
    lin_vel_y: tuple[float, ...]
    ang_vel_yaw: tuple[float, ...]
    num_seeds: int
    """Starts per command."""
    seed: int
    """Of the draws that make the starts differ."""
    duration_s: float
    dropped_s: float
    """Beginning of each episode that does not count."""
    starts: dict[str, EventTermConfig]
    falls: dict[str, TerminationTermConfig]
    max_error_vel_xy: float
    max_error_vel_yaw: float
    max_fall_rate: float

    @property
    def commands(self) -> list[tuple[float, float, float]]:
        """One command per episode, the starts of each command side by side."""
        return [
            (x, y, yaw)
            for x in self.lin_vel_x
            for y in self.lin_vel_y
            for yaw in self.ang_vel_yaw
            for _ in range(self.num_seeds)
        ]

    def env_config(self, trained: EnvConfig, physics: str) -> EnvConfig:
        """What the policy was trained with, in the conditions of the evaluation.

        Observations, actions, rewards and clocks stay; noise, randomisation and curricula go.
        """
        if self.command not in trained.commands:
            raise ConfigError(f"env.commands.{self.command}: missing, the evaluation sets it")
        commands: dict[str, CommandTermConfig] = dict(trained.commands)
        commands[self.command] = replace(commands[self.command], resampling_s=None)
        return EnvConfig.from_dict(
            replace(
                trained,
                episode_length_s=2.0 * self.duration_s,
                noise=False,
                domain_randomization=False,
                commands=commands,
                events=self.starts,
                terminations=self.falls,
                curriculum={},
            ).to_dict()
            | {"physics": physics}
        )


@dataclass(kw_only=True, slots=True, frozen=True)
class Task:
    """One entry of the registry."""

    name: str
    robot: RobotModel
    sims: tuple[str, ...]
    evaluation: VelocityEvaluation
