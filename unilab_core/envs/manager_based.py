"""ManagerBasedEnv: one control step of E environments, term by term; implements `Env`.

    validate -> process -> apply -> (interval events) -> physics
      -> read robots -> clocks -> terminations -> rewards -> goals due -> observations
      -> reset the ended: final observations kept, home pose, reset events, first observations

Owns every array it returns. The managers keep their own; all of them see the state of physics
through one TermView.
"""

# pyright: reportAttributeAccessIssue=false
# (names of the compiled part of mujoco have no stubs)

from time import perf_counter_ns

import mujoco
import numpy as np

from unilab_core.config.env import EnvConfig
from unilab_core.contracts import (
    TIMING_KEYS,
    Backend,
    BoolArray,
    EnvSpec,
    FloatArray,
    IdArray,
    PhysicsArray,
    StepResult,
)
from unilab_core.envs.managers.action import ActionManager
from unilab_core.envs.managers.command import make_command_manager
from unilab_core.envs.managers.curriculum import make_curriculum_manager
from unilab_core.envs.managers.event import make_event_manager
from unilab_core.envs.managers.observation import ObservationManager
from unilab_core.envs.managers.reward import RewardManager
from unilab_core.envs.managers.termination import TerminationManager
from unilab_core.envs.mdp.curricula import CurriculumContext
from unilab_core.envs.mdp.events import EventContext
from unilab_core.envs.robot_state import RobotLayout, RobotState
from unilab_core.envs.symmetry import mirror_symmetry
from unilab_core.envs.term_view import TermView
from unilab_core.robots.robot import RobotModel


class ManagerBasedEnv:
    """See the module docstring; build it with `unilab_core.envs.make_env`.

    Args:
        task: name of the task.
        sim: name of the backend.
        config: the terms.
        robot: constants of the robot.
        model: its compiled model.
        backend: physics of that model.
        seed: of every random draw.
        spread_episodes: start episodes at random lengths, so that they do not all end together.
    """

    def __init__(
        self,
        *,
        task: str,
        sim: str,
        config: EnvConfig,
        robot: RobotModel,
        model: mujoco.MjModel,
        backend: Backend,
        seed: int,
        spread_episodes: bool = True,
    ) -> None:
        self.backend = backend
        self.config = config
        self._rng = np.random.default_rng(seed)
        self._spread_episodes = spread_episodes
        self._num_envs = backend.num_envs
        self._num_steps = 0
        self._layout = RobotLayout.of(robot, model)
        self._robot_model = robot
        self._build_managers(config, robot, model)
        self._row_states: dict[int, RobotState] = {}
        self.spec = self._make_spec(task, sim)
        self.timings_ns: dict[str, int] = dict.fromkeys(TIMING_KEYS, 0)
        self._result = _empty_result(self.spec)

    def reset(self) -> StepResult:
        """Start all episodes."""
        result = self._result
        ids = np.arange(self._num_envs)
        self._restart(ids)
        if self._spread_episodes:
            self._episode_steps[:] = self._rng.integers(
                self.spec.max_episode_steps, size=self._num_envs
            )
        self.robot.load(self.backend)
        for values in (result.reward, result.terminated, result.truncated):
            values.fill(0)
        return result

    def step(self, actions: FloatArray) -> StepResult:
        """Advance all environments by one control step."""
        result = self._result
        start = perf_counter_ns()
        self.actions.validate(actions, self._num_steps)
        validated = perf_counter_ns()
        self.actions.process()
        processed = perf_counter_ns()
        self.actions.apply(self.backend.ctrl)
        self.events.interval()
        applied = perf_counter_ns()
        self.backend.step(self.config.num_substeps)
        stepped = perf_counter_ns()
        self._update(result)
        updated = perf_counter_ns()
        self._reset_done(result)
        finished = perf_counter_ns()
        self._num_steps += 1
        timings = self.timings_ns
        timings["action_validate"] = validated - start
        timings["apply_action"] = processed - validated
        timings["action_backend"] = applied - processed
        timings["backend"] = stepped - applied
        timings["update_state"] = updated - stepped
        timings["reset_done"] = finished - updated
        return result

    def restart(self, ids: IdArray) -> None:
        """Begin new episodes for these environments, between two steps."""
        self._restart(ids)

    def physics(self) -> dict[str, PhysicsArray]:
        """Live state of the physics."""
        backend = self.backend
        return {"qpos": backend.qpos, "qvel": backend.qvel, "ctrl": backend.ctrl}

    def continue_from(self, num_steps: int) -> None:
        """Count control steps from here; the curricula look at it when episodes end."""
        self._num_steps = num_steps

    def close(self) -> None:
        """Free the physics."""
        self.backend.close()

    def _update(self, result: StepResult) -> None:
        """Everything that follows from the new physical state."""
        unstable = self.robot.load(self.backend)
        self._count_unstable(unstable, result)
        self._episode_steps += 1
        self.commands.advance()
        view = self._view
        self.terminations.compute(view, unstable, result.terminated, result.truncated)
        self.rewards.compute(view, unstable, result.reward)
        self.rewards.log(result.log)
        self.commands.resample(self.terminations.done)
        self.observations.compute(view, result.obs, result.critic_obs)

    def _reset_done(self, result: StepResult) -> None:
        """Keep the true last observations of ended episodes and start new ones."""
        ids = np.flatnonzero(self.terminations.done)
        self.terminations.log(ids, result.truncated, result.log)
        if len(ids):
            result.final_obs[ids] = result.obs[ids]
            result.final_critic_obs[ids] = result.critic_obs[ids]
            self.curriculum.update(ids)
            self._restart(ids)

    def _restart(self, ids: IdArray) -> None:
        """New episodes for these environments, up to their first observations."""
        self.backend.reset_rows(ids)
        self.events.reset(ids)
        self.backend.forward_rows(ids)
        self.commands.reset(ids)
        self.actions.reset(ids)
        self._episode_steps[ids] = 0
        view = self._view_of(ids)
        result = self._result
        self.observations.compute_rows(view, ids, result.obs, result.critic_obs)

    def _view_of(self, ids: IdArray) -> TermView:
        """What terms see of a few environments right after their reset."""
        num_rows = len(ids)
        robot = self._row_states.get(num_rows)
        if robot is None:
            robot = self._row_states[num_rows] = RobotState(self._layout, num_rows)
        robot.load_rows(self.backend, ids)
        return TermView(
            num_envs=num_rows,
            step_dt_s=self._view.step_dt_s,
            max_episode_steps=self._view.max_episode_steps,
            robot=robot,
            action=self.actions.action[ids],
            previous_action=self.actions.previous_action[ids],
            commands={name: value[ids] for name, value in self.commands.values.items()},
            episode_steps=self._episode_steps[ids],
        )

    def _count_unstable(self, unstable: BoolArray | None, result: StepResult) -> None:
        count = 0 if unstable is None else int(np.count_nonzero(unstable))
        result.nonfinite["envs"] = count
        result.nonfinite["total"] += count
        result.unstable = unstable if count else None
        if count:  # the reset in this very step would take the evidence away
            result.broken = {name: values.copy() for name, values in self.physics().items()}

    def _build_managers(self, config: EnvConfig, robot: RobotModel, model: mujoco.MjModel) -> None:
        """Events first: start-up changes to the model come before the first look at it."""
        num_envs, rng = self._num_envs, self._rng
        context = EventContext(
            num_envs=num_envs,
            step_dt_s=config.ctrl_dt,
            backend=self.backend,
            model=model,
            robot=robot,
            rng=rng,
        )
        self.events = make_event_manager(
            config.events, context, domain_randomization=config.domain_randomization
        )
        self.events.startup()
        self.robot = RobotState(self._layout, num_envs)
        self.robot.load(self.backend)
        self.actions = ActionManager(config.actions, robot, num_envs)
        self.commands = make_command_manager(
            config.commands, num_envs=num_envs, step_dt_s=config.ctrl_dt, rng=rng
        )
        self._episode_steps = np.zeros(num_envs, np.intp)
        self._view = TermView(
            num_envs=num_envs,
            step_dt_s=config.ctrl_dt,
            max_episode_steps=config.max_episode_steps,
            robot=self.robot,
            action=self.actions.action,
            previous_action=self.actions.previous_action,
            commands=self.commands.values,
            episode_steps=self._episode_steps,
        )
        self.observations = ObservationManager(
            config.observations, noise=config.noise, rng=rng, view=self._view
        )
        self.rewards = RewardManager(config.rewards, self._view)
        self.terminations = TerminationManager(config.terminations, self._view)
        self.curriculum = make_curriculum_manager(
            config.curriculum,
            CurriculumContext(
                reward_names=self.rewards.names,
                reward_weights=self.rewards.weights,
                episode_steps=self._episode_steps,
                num_steps=lambda: self._num_steps,
            ),
        )

    def _make_spec(self, task: str, sim: str) -> EnvSpec:
        return EnvSpec(
            task=task,
            sim=sim,
            num_envs=self._num_envs,
            obs_width=self.observations.policy_width,
            critic_obs_width=self.observations.critic_width,
            action_width=self.actions.width,
            action_low=self.actions.low,
            action_high=self.actions.high,
            obs_terms=self.observations.policy_terms,
            critic_obs_terms=self.observations.critic_terms,
            reward_terms=self.rewards.names,
            termination_terms=self.terminations.names,
            log_keys=(*self.rewards.log_keys, *self.terminations.log_keys),
            ctrl_dt_s=self.config.ctrl_dt,
            max_episode_steps=self.config.max_episode_steps,
            backend_device=self.backend.device,
            symmetry=mirror_symmetry(self.config, self._robot_model),
        )


def _empty_result(spec: EnvSpec) -> StepResult:
    envs = spec.num_envs
    return StepResult(
        obs=np.zeros((envs, spec.obs_width), np.float32),
        critic_obs=np.zeros((envs, spec.critic_obs_width), np.float32),
        reward=np.zeros(envs, np.float32),
        terminated=np.zeros(envs, np.bool_),
        truncated=np.zeros(envs, np.bool_),
        final_obs=np.zeros((envs, spec.obs_width), np.float32),
        final_critic_obs=np.zeros((envs, spec.critic_obs_width), np.float32),
        log=dict.fromkeys(spec.log_keys, 0.0),
        nonfinite={"envs": 0, "total": 0},
    )
