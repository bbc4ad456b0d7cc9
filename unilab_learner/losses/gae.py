"""Generalised advantage estimation (Schulman et al. 2016) with time limits told apart from ends.

    delta_t = r_t + gamma (1 - terminated_t) V'_t - V_t
    A_t     = delta_t + gamma lam (1 - done_t) A_{t+1},   A_T = 0
    R_t     = A_t + V_t

V'_t is the value of the state that the step led to: the final state where the episode ended, the
next observation elsewhere. A time limit cuts the recursion but not the bootstrap.

Legend: T steps, N environments.
"""

import torch
from torch import Tensor


def next_state_values(
    values: Tensor, final_t: Tensor, final_n: Tensor, final_values: Tensor
) -> Tensor:
    """V'[T, N] from V[T + 1, N] and the values of the truncated rows' final states.

    Args:
        values: [T + 1, N]; the last row belongs to the observation after the last step.
        final_t: [F] step of each truncated row.
        final_n: [F] environment of each truncated row.
        final_values: [F] value of its final state.
    """
    following = values[1:].clone()
    following[final_t, final_n] = final_values
    return following


def gae(
    reward: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    done: Tensor,
    *,
    gamma: float,
    lam: float,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns.

    Args:
        reward: [T, N].
        values: [T, N] V of the states acted in.
        next_values: [T, N] V' of the states reached (see `next_state_values`).
        terminated: [T, N] 1.0 where the episode really ended.
        done: [T, N] 1.0 where the episode ended for either reason.
        gamma: discount per step.
        lam: 0 is the one-step error, 1 the whole return.

    Returns:
        A[T, N] and R[T, N].
    """
    delta = reward + gamma * (1.0 - terminated) * next_values - values
    decay = gamma * lam * (1.0 - done)
    advantages = torch.empty_like(delta)
    running = torch.zeros_like(delta[0])
    for t in range(delta.shape[0] - 1, -1, -1):
        running = delta[t] + decay[t] * running
        advantages[t] = running
    return advantages, advantages + values
