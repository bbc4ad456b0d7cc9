"""The learner's side of the inference slot: observations in, actions out, one complete policy.

    try_request() -> seq
    infer(seq)      h2d: slot -> device | forward: normalise, sample | d2h: actions -> slot
    respond(seq)    the collector steps its environments while the learner updates

SYNC POINT pairs (the other ends are in the collector):
    request:  `CollectorPort.publish` -> `LearnerPort.try_request`
    response: `LearnerPort.respond`   -> `CollectorPort.try_response`

Legend: E environments, O observation, A action.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from unilab_core.run.failures import NonFiniteError
from unilab_ipc.inference_slot import LearnerPort

H2D, FORWARD, D2H = "h2d", "forward", "d2h"

PolicyFn = Callable[[Tensor, Tensor], Tensor]
"""obs[E, O], ended[E] (1 where the last step ended an episode) -> actions[E, A], all on the
learner's device."""


class InferenceServer:
    """Answers requests with `policy`, which the caller may exchange (random during warm-up)."""

    def __init__(
        self, port: LearnerPort, policy: PolicyFn, device: torch.device, *, check_finite: bool
    ) -> None:
        self.policy = policy
        self.nested_ns = dict.fromkeys((H2D, FORWARD, D2H), 0)
        """Time per part since `clear_times`, in ns."""
        self.num_served = 0
        self.first_response_ns: int | None = None
        """When the first answer left (monotonic)."""
        self._port = port
        self._device = device
        self._check_finite = check_finite
        self._staging = torch.zeros(port.obs.shape, pin_memory=device.type == "cuda")
        self._staging_rows = self._staging.numpy()

    def try_request(self) -> int | None:
        """Sequence number of a request that waits for its answer."""
        return self._port.try_request()  # SYNC POINT: request

    @torch.inference_mode()
    def infer(self, seq: int) -> None:
        """Compute the actions of request `seq` into the slot.

        Raises:
            NonFiniteError: an observation or an action is NaN or infinite; names the environment.
        """
        start_ns = time.monotonic_ns()
        np.copyto(self._staging_rows, self._port.obs)
        if self._check_finite:
            # The collector has looked already, and a random action would hide what came since.
            require_finite_rows(self._staging_rows, "observation", seq)
        obs = self._staging.to(self._device, non_blocking=True)
        ended = torch.from_numpy(self._port.done.copy()).to(self._device)
        copied_ns = time.monotonic_ns()
        actions = self.policy(obs, ended)
        self._synchronize()
        computed_ns = time.monotonic_ns()
        np.copyto(self._port.actions, actions.cpu().numpy())
        done_ns = time.monotonic_ns()
        self.nested_ns[H2D] += copied_ns - start_ns
        self.nested_ns[FORWARD] += computed_ns - copied_ns
        self.nested_ns[D2H] += done_ns - computed_ns
        if self._check_finite:
            require_finite_rows(self._port.actions, "action", seq)

    def respond(self, seq: int, policy_version: int) -> None:
        """Hand the actions to the collector."""
        self._port.respond(seq, policy_version)  # SYNC POINT: response
        if self.num_served == 0:
            self.first_response_ns = time.monotonic_ns()
        self.num_served += 1

    def respond_closed(self, seq: int, policy_version: int) -> None:
        """Answer the last request: there are no actions, and nothing will be answered any more."""
        self._port.respond(seq, policy_version, closed=True)  # SYNC POINT: response

    def clear_times(self) -> None:
        """Start a new averaging window of `nested_ns`."""
        self.nested_ns = dict.fromkeys(self.nested_ns, 0)

    def _synchronize(self) -> None:
        # Without it the forward would be charged to the copy that waits for it.
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def require_finite_rows(rows: np.ndarray, source: str, seq: int) -> None:
    """Refuse rows[E, width] that are not finite.

    Raises:
        NonFiniteError: names the first such environment.
    """
    # One reduction on the good path: a sum is finite only if every term is.
    if np.isfinite(rows.sum()):
        return
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if bad.size:
        raise NonFiniteError(source=source, env=int(bad[0]), step=seq)
