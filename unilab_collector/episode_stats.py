"""Episode statistics of one collector rank: what the reports say about returns and terms.

Legend: ``E`` environments. Returns are raw environment returns (no time-out correction), lengths
are environment steps. Counters are cumulative, so that a lost report biases nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

RETURN_WINDOW_EPISODES = 100
"""Episodes behind ``Train/mean_reward`` and ``Train/mean_episode_length``."""


class EpisodeStats:
    """Folds vector ticks into episode and reward-term statistics.

    The first episode of each environment may start at a random age (the environment spreads initial
    lengths so that resets do not coincide). Its length is then shorter than a whole episode, which
    is the true number of steps it was observed for.
    """

    def __init__(self, num_envs: int, dropped: Mapping[str, int] | None = None) -> None:
        self.dropped: Mapping[str, int] = {} if dropped is None else dropped
        """Transitions dropped so far, by source; the guard of the environment counts them."""
        self._return = np.zeros(num_envs, np.float64)
        self._length = np.zeros(num_envs, np.int64)
        self._returns: deque[float] = deque(maxlen=RETURN_WINDOW_EPISODES)
        self._lengths: deque[int] = deque(maxlen=RETURN_WINDOW_EPISODES)
        self.completed = 0
        self.timeouts = 0
        self._term_sums: dict[str, float] = {}
        self._term_ticks = 0
        self._terminations: dict[str, int] = {}
        self._terminations_total: dict[str, int] = {}

    def add_tick(
        self,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        dropped: np.ndarray | None = None,
    ) -> np.ndarray:
        """Fold one tick: ``reward[E]``, ``terminated[E]``, ``truncated[E]``; return ``done[E]``.

        Episodes that end in a ``dropped[E]`` row were not played to an end: they are forgotten.
        """
        self._return += reward
        self._length += 1
        done = terminated | truncated
        if dropped is not None:
            self._return[dropped] = 0.0
            self._length[dropped] = 0
            self._fold_ended(done & ~dropped, truncated & ~dropped)
        elif done.any():
            self._fold_ended(done, truncated)
        return done

    def _fold_ended(self, done: np.ndarray, truncated: np.ndarray) -> None:
        if done.any():
            ids = np.flatnonzero(done)
            self._returns.extend(self._return[ids].tolist())
            self._lengths.extend(self._length[ids].tolist())
            self.completed += ids.size
            self.timeouts += int(np.count_nonzero(truncated))
            self._return[ids] = 0.0
            self._length[ids] = 0

    def add_log(self, log: Mapping[str, float]) -> None:
        """Fold ``info["log"]``: reward terms are averaged over ticks, terminations are summed."""
        self._term_ticks += 1
        for key, value in log.items():
            if key.startswith("reward/"):
                self._term_sums[key] = self._term_sums.get(key, 0.0) + value
            elif key.startswith("Episode_Termination/"):
                count = int(value)
                self._terminations[key] = self._terminations.get(key, 0) + count
                self._terminations_total[key] = self._terminations_total.get(key, 0) + count

    def mean_return(self) -> float | None:
        """Mean return of the last 100 episodes; None before the first has ended."""
        return sum(self._returns) / len(self._returns) if self._returns else None

    def mean_length(self) -> float | None:
        """Mean length of the last 100 episodes, in environment steps; None before the first."""
        return sum(self._lengths) / len(self._lengths) if self._lengths else None

    def take_terms(self) -> tuple[dict[str, float], dict[str, int], dict[str, int]]:
        """Reward-term means and termination counts since the last call, and the running totals."""
        ticks = max(self._term_ticks, 1)
        rewards = {key: total / ticks for key, total in self._term_sums.items()}
        terminations = dict(self._terminations)
        self._term_sums = dict.fromkeys(self._term_sums, 0.0)
        self._terminations = dict.fromkeys(self._terminations, 0)
        self._term_ticks = 0
        return rewards, terminations, dict(self._terminations_total)
