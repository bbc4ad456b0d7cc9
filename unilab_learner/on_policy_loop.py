"""The learner's main loop for PPO: the rollout crosses the inference slot, then everybody learns.

    collector   | step  | wait | step  | ... | step  | ......... wait ......... | step |
    learner     act     .     act store ...  act store | store, returns, epochs | act

Both roles alternate, so each may use every core; only a transition is stored while the collector
already makes the next one. The learner's one exclusive phase is Learning; the
collector owns the rollout's wall (Perf/collection_time). Saving and logging are the rest.

Ends after `max_iterations`, after `max_wall_time_s`, or by a stop: level 1 finishes the iteration
and saves, level 2 leaves through `Closed`, raised by a wait.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tensordict import TensorDict

from unilab_core.config.config import Config
from unilab_core.telemetry.phase_timer import PhaseTimer
from unilab_core.telemetry.training_logger import IterationSample, TrainingLogger
from unilab_ipc.heartbeat import RoleBeat
from unilab_ipc.metric_queue import RingReader
from unilab_learner.ending import end_reason, newest_mean_return
from unilab_learner.ppo_learner import PpoLearner
from unilab_learner.saver import Progress, Saver
from unilab_learner.slot_vec_env import SlotVecEnv
from unilab_learner.step_trace import StepTrace

LEARNING = "learning"
NS_PER_S = 1_000_000_000


@dataclass(kw_only=True, slots=True)
class OnPolicyParts:
    """What the loop connects; it owns none of them."""

    config: Config
    learner: PpoLearner
    env: SlotVecEnv
    saver: Saver
    logger: TrainingLogger
    collector_ring: RingReader
    beat: RoleBeat
    stop_level: Callable[[], int]
    progress: Progress
    """Counters to continue from."""
    make_timer: Callable[[Iterable[str]], PhaseTimer] = PhaseTimer
    """What stands in its place when the timeline is recorded."""
    steps: StepTrace = field(default_factory=StepTrace.silent)


class OnPolicyLoop:
    """One training session of one rank; see the module docstring."""

    def __init__(self, parts: OnPolicyParts) -> None:
        self._parts = parts
        self._algo = parts.learner.cfg
        self._progress = parts.progress
        self._timer = parts.make_timer((LEARNING,))
        self._start_ns = time.monotonic_ns()
        self._metrics: dict[str, float] = {}
        self._num_rollouts = 0
        self.last_reports: list[dict[str, Any]] = []
        """Collector records of the newest iteration that had any."""

    def run(self) -> str:
        """Train; return why it ended: completed, wall_time or stopped.

        Raises:
            Closed: a stop without saving.
            PeerDead: the collector or the launcher died.
            NonFiniteError: a loss, a weight or an action was not finite.
            FinalSaveError: the last checkpoint could not be written.
        """
        parts = self._parts
        obs = parts.env.get_observations()
        parts.logger.mark_trainable(time.monotonic_ns())
        self._timer.start_cycle()
        while (reason := self._end_reason()) is None:
            obs = self._iterate(obs)
            # The report of iteration k runs inside cycle k+1: every moment is in exactly one.
            self._timer.start_cycle()
            with parts.steps.metrics(self._progress.iteration):
                self._report()
            self._save_if_due()
        parts.beat.phase("finalize/collector_quiesce", awaits="collector")
        parts.env.close()
        parts.beat.phase("finalize/checkpoint")
        parts.saver.save_final(self._progress)
        return reason

    @property
    def elapsed_s(self) -> float:
        """Time since the loop was built."""
        return (time.monotonic_ns() - self._start_ns) / NS_PER_S

    def _iterate(self, obs: TensorDict) -> TensorDict:
        """One rollout and what is learned from it; the observations after it."""
        learner, env, beat = self._parts.learner, self._parts.env, self._parts.beat
        steps = self._parts.steps
        steps.begin(self._progress.iteration)
        arrived = None
        for _ in range(self._algo.num_steps_per_env):
            beat.phase("training/learner_inference")
            env.begin(learner.act(obs))
            if arrived is not None:
                learner.store(*arrived)
            arrived = env.finish()
            obs = arrived[0]
        assert arrived is not None, "num_steps_per_env is at least 1"
        learner.store(*arrived)
        self._timer.lap(None)
        steps.rollout_taken(self._num_rollouts)
        self._num_rollouts += 1
        steps.batch_ready(self._env_steps_per_iteration)
        beat.phase("training/learner_update")
        with steps.advantages():
            learner.add_returns(obs)
        with steps.update():
            self._metrics = learner.learn(self._progress.iteration)
        self._timer.lap(LEARNING)
        self._progress.iteration += 1
        steps.updated(self._progress.iteration)
        steps.weights_in_use()
        self._progress.env_steps += self._env_steps_per_iteration
        beat.counts(self._progress.iteration, self._progress.env_steps)
        beat.advance()
        return obs

    @property
    def _env_steps_per_iteration(self) -> int:
        return self._algo.num_envs * self._algo.num_steps_per_env

    def _end_reason(self) -> str | None:
        return end_reason(
            self._parts.config,
            iteration=self._progress.iteration,
            elapsed_s=self.elapsed_s,
            stop_level=self._parts.stop_level(),
        )

    def _report(self) -> None:
        """Hand the finished iteration to the logger, exactly once."""
        parts, timer = self._parts, self._timer
        records = parts.collector_ring.read()
        self.last_reports = records or self.last_reports
        self._progress.mean_return = newest_mean_return(records, self._progress.mean_return)
        parts.logger.submit(
            IterationSample(
                iteration=self._progress.iteration,
                env_steps=self._progress.env_steps,
                wall_s=timer.wall_ns / NS_PER_S,
                learner={"Perf/learning_time": timer.phase_ns[LEARNING] / NS_PER_S},
                metrics=self._metrics,
                env_steps_delta=self._env_steps_per_iteration,
                collector=records,
                replay_rows=parts.learner.rows_per_iteration,
            )
        )
        timer.clear()

    def _save_if_due(self) -> None:
        saver = self._parts.saver
        saver.export_policy_if_due(self._progress)
        if saver.due(self._progress):
            self._parts.beat.phase("training/checkpoint")
            with self._parts.steps.checkpoint():
                self._parts.logger.note(saver.try_save(self._progress))
