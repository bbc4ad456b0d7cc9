"""APPO's rollouts into the rollout ring: one slot is [T, E] steps of one behaviour policy.

    claim()        waits for a free slot (back-pressure, counted)
    put_obs(t)     observations acted on, t = 0 .. T - 1
    put_step(t)    action, log-probability, mean, reward, ends, final critic observations
    finish()       the observation after the last step, versions; committed

The slot is filled in place. The observation T is what the last step's value is bootstrapped from,
and the final critic observations are what time limits are bootstrapped from: both are always
written. A ring that is full makes the collector wait; a rollout is never overwritten.

SYNC POINT pair (the other end is in the learner):
    rollout: ``SlotProducer.commit`` -> ``SlotConsumer.try_acquire``

Legend: T steps, E environments, O observation, C critic observation, A action.
"""

from __future__ import annotations

import time

import numpy as np

from unilab_collector.acting_policy import ActingPolicy
from unilab_core.contracts import EnvSpec, StepResult
from unilab_ipc.errors import Closed
from unilab_ipc.rollout_ring import RolloutSlot
from unilab_ipc.slot_ring import SlotProducer
from unilab_ipc.waiting import Waiter


class RolloutFeed:
    """The collector's side of the ring."""

    def __init__(
        self, producer: SlotProducer[RolloutSlot], spec: EnvSpec, steps: int, waiter: Waiter
    ) -> None:
        self._producer = producer
        self._waiter = waiter
        self._num_envs = spec.num_envs
        self._slot: RolloutSlot | None = None
        self.steps = steps
        self.rollouts = 0

    @property
    def env_steps(self) -> int:
        """Transitions committed so far."""
        return self.rollouts * self.steps * self._num_envs

    @property
    def closed(self) -> bool:
        """Whether the learner takes no more rollouts."""
        return self._producer.closed

    def claim(self) -> None:
        """Take the next free slot; wait for one while the learner lives.

        Raises:
            Closed: the learner takes no more rollouts, or the run stops.
            PeerDead: the learner died while the ring was full.
        """
        slot = self._producer.try_claim()
        if slot is None:
            start_ns = time.monotonic_ns()
            try:
                slot = self._waiter.wait(self._producer.try_claim, timeout_s=None, awaits="learner")
            finally:
                self._producer.note_wait(time.monotonic_ns() - start_ns)
        self._slot = slot

    def put_obs(self, t: int, result: StepResult) -> None:
        """Observations of step t, before the environment overwrites them."""
        slot = self._claimed()
        slot.obs[t] = result.obs
        slot.critic_obs[t] = result.critic_obs

    def put_step(
        self,
        t: int,
        actions: np.ndarray,
        log_prob: np.ndarray,
        mean: np.ndarray,
        result: StepResult,
    ) -> None:
        """Everything about step t that is known after it.

        Args:
            t: step within the rollout.
            actions: [E, A].
            log_prob: [E].
            mean: [E, A].
            result: what the environment returned.
        """
        slot = self._claimed()
        slot.actions[t] = actions
        slot.log_prob[t] = log_prob
        slot.mean[t] = mean
        slot.reward[t] = result.reward
        slot.terminated[t] = result.terminated
        slot.truncated[t] = result.truncated
        slot.dropped[t] = 0 if result.dropped is None else result.dropped
        ids = np.flatnonzero(result.terminated | result.truncated)
        slot.final_critic_obs[t, ids] = result.final_critic_obs[ids]

    def finish(self, result: StepResult, policy: ActingPolicy) -> None:
        """Write the observation after the last step and who acted; hand the rollout over."""
        self.put_obs(self.steps, result)
        slot = self._claimed()
        slot.std[...] = policy.std
        slot.set_versions(policy.version, policy.normaliser_version)
        self._producer.commit()  # SYNC POINT: rollout
        self._slot = None
        self.rollouts += 1

    def give_up(self) -> None:
        """Leave a started rollout unpublished, counted."""
        if self._slot is not None:
            self._producer.abort()
            self._producer.note_drop("closed" if self._producer.closed else "stop")
            self._slot = None

    def require_open(self) -> None:
        """A rollout that nobody will take is not worth finishing.

        Raises:
            Closed: the learner closed the ring.
        """
        if self._producer.closed:
            raise Closed("the learner takes no more rollouts")

    def _claimed(self) -> RolloutSlot:
        assert self._slot is not None, "claim first"
        return self._slot
