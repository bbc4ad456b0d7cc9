"""Transitions into the bounded replay ingress: one slot per vector tick, none lost or doubled.

Legend: ``E`` environments, ``O`` observation, ``C`` critic observation, ``A`` action widths.

The next state of a row is its final observation where the episode ended and the observation after
the step elsewhere (algorithms.md 1.0). Two steps, because two phases are timed: ``extract`` builds
that next state, ``write`` waits for room (back-pressure, counted) and copies the row into the slot.
"""

from __future__ import annotations

import time

import numpy as np

from unilab_core.contracts import EnvSpec, StepResult
from unilab_ipc.errors import Closed
from unilab_ipc.replay_ingress import TransitionSlot
from unilab_ipc.slot_ring import SlotProducer
from unilab_ipc.waiting import Waiter


class ReplayFeed:
    """The collector's side of the ingress.

    ``obs[E, O]`` and ``critic_obs[E, C]`` of the tick being acted on are copied in by ``remember``,
    because the environment overwrites its arrays in ``step``.
    """

    def __init__(
        self, producer: SlotProducer[TransitionSlot], spec: EnvSpec, waiter: Waiter
    ) -> None:
        self._producer = producer
        self._waiter = waiter
        num_envs = spec.num_envs
        self._obs = np.zeros((num_envs, spec.obs_width), np.float32)
        self._critic_obs = np.zeros((num_envs, spec.critic_obs_width), np.float32)
        self._next_obs = np.zeros_like(self._obs)
        self._next_critic_obs = np.zeros_like(self._critic_obs)
        self.ticks = 0

    def remember(self, obs: np.ndarray, critic_obs: np.ndarray) -> None:
        """Keep the observations that the next action answers."""
        np.copyto(self._obs, obs)
        np.copyto(self._critic_obs, critic_obs)

    def extract(self, result: StepResult, done: np.ndarray) -> None:
        """Build the next state of every row."""
        np.copyto(self._next_obs, result.obs)
        np.copyto(self._next_critic_obs, result.critic_obs)
        if done.any():
            ids = np.flatnonzero(done)
            self._next_obs[ids] = result.final_obs[ids]
            self._next_critic_obs[ids] = result.final_critic_obs[ids]

    def write(self, actions: np.ndarray, result: StepResult) -> None:
        """Copy the tick into the next free slot; wait for room while the learner lives.

        Raises:
            Closed: the run stops and the slot never came free; the batch is counted as dropped.
            PeerDead: the learner died while the ingress was full.
        """
        slot = self._producer.try_claim()
        if slot is None:
            slot = self._wait_for_room()
        slot.obs[...] = self._obs
        slot.critic_obs[...] = self._critic_obs
        slot.action[...] = actions
        slot.reward[...] = result.reward
        slot.terminated[...] = result.terminated
        slot.truncated[...] = result.truncated
        slot.dropped[...] = 0 if result.dropped is None else result.dropped
        slot.next_obs[...] = self._next_obs
        slot.next_critic_obs[...] = self._next_critic_obs
        self._producer.commit()
        self.ticks += 1

    def _wait_for_room(self) -> TransitionSlot:
        start_ns = time.monotonic_ns()
        try:
            # Bounded by the learner's life and the stop request: the supervisor, not this wait,
            # decides when a living learner has stood still for too long.
            slot = self._waiter.wait(self._producer.try_claim, timeout_s=None, awaits="learner")
        except Closed:
            self._producer.note_drop("stop")
            raise
        finally:
            self._producer.note_wait(time.monotonic_ns() - start_ns)
        return slot
