"""Categorical value distributions (C51, Bellemare et al. 2017) on a fixed support.

    z_k = v_min + k * delta,   delta = (v_max - v_min) / (K - 1),   k = 0 .. K-1

Legend: B rows, K atoms, M critics.
"""

import torch
from torch import Tensor
from torch.nn import functional

LOG_PROB_FLOOR = -30.0
"""A predicted log-probability below this gives no larger loss: one lost atom cannot explode it."""


def make_support(v_min: float, v_max: float, num_atoms: int) -> Tensor:
    """The atoms z[K]."""
    return torch.linspace(v_min, v_max, num_atoms)


def expected_value(logits: Tensor, support: Tensor) -> Tensor:
    """Mean of the distributions logits[..., K] -> [...]."""
    return functional.softmax(logits, dim=-1) @ support


def project(probs: Tensor, target_atoms: Tensor, v_min: float, v_max: float) -> Tensor:
    """Project mass probs[M, B, K] sitting at target_atoms[B, K] onto the fixed support.

    Each atom is clamped into the support and its mass split between its two neighbours in
    proportion to proximity; the total mass stays 1 and, inside the support, so does the mean.
    """
    num_atoms = probs.shape[-1]
    position = (target_atoms.clamp(v_min, v_max) - v_min) * ((num_atoms - 1) / (v_max - v_min))
    # Rounding may put the last position a hair above K - 1. A NaN must not become an index: it
    # gets atom 0, stays in the shares, and so reaches the loss, where the step is refused.
    lower = position.floor().clamp(max=num_atoms - 2).nan_to_num(nan=0.0)
    upper_share = position - lower
    index = lower.long().expand_as(probs)
    projected = torch.zeros_like(probs)
    projected.scatter_add_(-1, index, probs * (1.0 - upper_share))
    projected.scatter_add_(-1, index + 1, probs * upper_share)
    return projected


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """Sum over critics of the batch mean of CE(target, softmax(logits)), both [M, B, K] -> [].

    CE(m, p) = - sum_k m_k log p_k
    """
    log_probs = functional.log_softmax(logits, dim=-1).clamp(min=LOG_PROB_FLOOR)
    return -(target * log_probs).sum(dim=-1).mean(dim=-1).sum()
