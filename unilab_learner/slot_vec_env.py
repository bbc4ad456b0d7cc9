"""rsl-rl-lib's VecEnv whose `step` crosses the inference slot into the collector process.

    learner                                      collector
    begin(actions): actions -> slot, respond ->  env.step, transition and next observations -> slot
    (what else there is to do)
    finish(): wait                     <-------  request(t + 1)
              slot -> tensors

SYNC POINT pairs (the other ends are in the collector):
    request:  `CollectorPort.publish` -> `LearnerPort.try_request`
    response: `LearnerPort.respond`   -> `CollectorPort.try_response`

Legend: E environments, O observation, C critic observation, A action, F truncated rows.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from unilab_core.contracts import EnvSpec
from unilab_ipc.heartbeat import RoleBeat
from unilab_ipc.inference_slot import LearnerPort
from unilab_ipc.waiting import Waiter
from unilab_learner.algos.ppo import observations
from unilab_learner.inference_server import require_finite_rows

TRUNCATED_ROWS = "truncated_rows"
"""Key of `extras`: [F] environments whose episode the time limit cut in this step."""
FINAL_CRITIC_OBS = "final_critic_obs"
"""Key of `extras`: [F, C] their true last critic observations."""
DROPPED_ROWS = "dropped_rows"
"""Key of `extras`: environments whose transition is a placeholder of the NaN guard."""


StepTensors = tuple[TensorDict, Tensor, Tensor, dict[str, Any]]
"""What a step returns: observation groups, rewards[E], dones[E], extras."""


class SlotVecEnv(VecEnv):
    """E environments in another process.

    `extras` of a step holds `log` (by the names of EnvSpec.log_keys) and the three keys above in
    place of the library's `time_outs`, which could not carry the final observations.
    """

    def __init__(
        self,
        port: LearnerPort,
        spec: EnvSpec,
        device: torch.device,
        *,
        waiter: Waiter,
        beat: RoleBeat,
        policy_version: Callable[[], int],
    ) -> None:
        self.num_envs = spec.num_envs
        self.num_actions = spec.action_width
        self.max_episode_length = spec.max_episode_steps
        self.episode_length_buf = torch.zeros(spec.num_envs, dtype=torch.long, device=device)
        self.device = device
        self.cfg = spec.to_json()
        self._log_keys = spec.log_keys
        self._port = port
        self._waiter = waiter
        self._beat = beat
        self._policy_version = policy_version
        self._seq: int | None = None

    def get_observations(self) -> TensorDict:
        """Observations of the pending request; waits for the first one."""
        if self._seq is None:
            self._await_request()
        port = self._port
        return observations(self._tensor(port.obs), self._tensor(port.critic_obs))

    def step(self, actions: Tensor) -> StepTensors:
        """`begin`, then `finish`."""
        self.begin(actions)
        return self.finish()

    def begin(self, actions: Tensor) -> None:
        """Let the collector apply actions[E, A]; the slot is its own until `finish`.

        Raises:
            NonFiniteError: an action is not finite; names the environment.
        """
        seq = self._seq
        assert seq is not None, "get_observations comes first"
        np.copyto(self._port.actions, actions.cpu().numpy())
        require_finite_rows(self._port.actions, "action", seq)
        self._beat.phase("training/inference_response")
        self._port.respond(seq, self._policy_version())  # SYNC POINT: response
        self._seq = None
        self._beat.advance()

    def finish(self) -> StepTensors:
        """Wait for what follows the actions.

        Returns:
            Observation groups, rewards[E], dones[E], extras.

        Raises:
            Closed, PeerDead: the run ends while waiting.
        """
        self._await_request()
        port = self._port
        rows = np.flatnonzero(port.truncated > port.terminated)  # never both: an end wins
        extras = {
            TRUNCATED_ROWS: torch.from_numpy(rows).to(self.device),
            FINAL_CRITIC_OBS: torch.from_numpy(port.final_critic_obs[rows]).to(self.device),
            DROPPED_ROWS: torch.from_numpy(np.flatnonzero(port.dropped)).to(self.device),
            "log": dict(zip(self._log_keys, port.log.tolist(), strict=True)),
        }
        dones = self._tensor(port.terminated | port.truncated)
        return self.get_observations(), self._tensor(port.reward), dones, extras

    def close(self) -> None:
        """Answer the pending request with `closed`: the collector ends."""
        if self._seq is None:
            self._await_request()
        seq = self._seq
        assert seq is not None
        self._port.respond(seq, self._policy_version(), closed=True)  # SYNC POINT: response
        self._seq = None

    def _await_request(self) -> None:
        self._beat.phase("training/wait_for_inference_request", awaits="collector")
        # No time limit: the waiter ends it when the collector dies, the supervisor when it hangs.
        self._seq = self._waiter.wait(
            self._port.try_request, timeout_s=None, awaits="collector"
        )  # SYNC POINT: request

    def _tensor(self, rows: np.ndarray) -> Tensor:
        """A copy on the learner's device: the slot is overwritten by the next step."""
        return torch.from_numpy(np.array(rows)).to(self.device)
