"""V-trace targets (IMPALA, arXiv 1802.01561) with lambda, for data of an older policy.

    rho_t  = min(rho_bar, pi(a_t|s_t) / mu(a_t|s_t))
    c_t    = lam min(c_bar, pi(a_t|s_t) / mu(a_t|s_t))
    delta_t = rho_t (r_t + gamma (1 - terminated_t) V'_t - V_t)
    vs_t - V_t = delta_t + gamma c_t (1 - done_t) (vs_{t+1} - V_{t+1})
    A_t    = rho_t (r_t + gamma (1 - terminated_t) vs'_t - V_t)

    vs'_t  = V'_t where the episode was cut by time or the rollout ends, else vs_{t+1}

mu is the policy that acted, pi the one whose value is wanted. With mu = pi the targets are the
returns of GAE(lam). V'_t is the value of the state reached, see `gae.next_state_values`.

`one_step` advantages are those of the paper, as above. `mixed` ones replace vs'_t by
(1 - lam) V'_t + lam vs'_t, which makes them GAE(lam)'s advantages when mu = pi.

Legend: T steps, N environments.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

AdvantageKind = Literal["one_step", "mixed"]


@dataclass(kw_only=True, slots=True)
class VtraceTargets:
    """What the update learns from."""

    vs: Tensor
    """[T, N] value targets"""
    advantages: Tensor
    """[T, N]"""
    rho: Tensor
    """[T, N] importance ratios before clipping"""


def vtrace(
    log_ratio: Tensor,
    reward: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    done: Tensor,
    *,
    gamma: float,
    lam: float,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    advantage: AdvantageKind = "one_step",
) -> VtraceTargets:
    """Targets and advantages.

    Args:
        log_ratio: [T, N] log pi(a|s) - log mu(a|s).
        reward: [T, N].
        values: [T, N] V of the states acted in.
        next_values: [T, N] V' of the states reached.
        terminated: [T, N] 1.0 where the episode really ended.
        done: [T, N] 1.0 where the episode ended for either reason.
        gamma: discount per step.
        lam: factor of the trace; 1 is the paper's V-trace.
        clip_rho: rho_bar, decides which policy's value is learned.
        clip_c: c_bar, decides how far corrections travel.
        advantage: see the module's text.
    """
    ratio = log_ratio.exp()
    rho = ratio.clamp(max=clip_rho)
    bootstrap = gamma * (1.0 - terminated)
    delta = rho * (reward + bootstrap * next_values - values)
    trace = gamma * lam * ratio.clamp(max=clip_c) * (1.0 - done)
    correction = torch.empty_like(delta)
    running = torch.zeros_like(delta[0])
    for t in range(delta.shape[0] - 1, -1, -1):
        running = delta[t] + trace[t] * running
        correction[t] = running
    # Where an episode goes on inside the rollout, V' is V of the next row, so its target is V'
    # plus the next row's correction; elsewhere V' stands as it is.
    reached = next_values.clone()
    weight = lam if advantage == "mixed" else 1.0
    reached[:-1] += weight * (1.0 - done[:-1]) * correction[1:]
    return VtraceTargets(
        vs=values + correction,
        advantages=rho * (reward + bootstrap * reached - values),
        rho=ratio,
    )
