"""PPO's transitions: they travel in the inference slot, with the request that follows the step.

Between the answer to request t and the publication of request t + 1 the slot belongs to the
collector, so `write` fills reward, ends, final observations and the log vector in place; SlotLoop
adds the new observations and publishes all of it at once.

Legend: ``E`` environments, ``O`` observation, ``C`` critic observation, ``L`` log entries.
"""

from __future__ import annotations

import numpy as np

from unilab_core.contracts import EnvSpec, StepResult
from unilab_ipc.inference_slot import CollectorPort


class StepFeed:
    """Stands where SAC has its ReplayFeed."""

    def __init__(self, port: CollectorPort, spec: EnvSpec) -> None:
        self._port = port
        self._log_keys = spec.log_keys
        self.ticks = 0

    def remember(self, obs: np.ndarray, critic_obs: np.ndarray) -> None:
        """Nothing to keep: the learner has its own copy of what it acted on."""

    def extract(self, result: StepResult, done: np.ndarray) -> None:
        """Nothing to build: the learner puts the final observations in their place."""

    def write(self, actions: np.ndarray, result: StepResult) -> None:
        """Fill the slot with what the step returned; the next publication hands it over."""
        port = self._port
        port.reward[...] = result.reward
        port.terminated[...] = result.terminated
        port.truncated[...] = result.truncated
        port.dropped[...] = 0 if result.dropped is None else result.dropped
        ids = np.flatnonzero(result.terminated | result.truncated)
        port.final_obs[ids] = result.final_obs[ids]
        port.final_critic_obs[ids] = result.final_critic_obs[ids]
        for index, key in enumerate(self._log_keys):
            port.log[index] = result.log[key]
        self.ticks += 1
