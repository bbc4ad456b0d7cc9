"""RewardManager: weighted sum of terms x dt, and each term's mean for the log."""

import numpy as np

from unilab_core.config.env import RewardTermConfig
from unilab_core.contracts import BoolArray, FloatArray
from unilab_core.envs.managers.resolve import check_shape, first_value, resolve_term
from unilab_core.envs.mdp import rewards
from unilab_core.envs.term_view import TermView


class RewardManager:
    """All reward terms; one pass per term, one product for the sum, one for the means."""

    def __init__(self, terms: dict[str, RewardTermConfig], view: TermView) -> None:
        self.names = tuple(terms)
        self.log_keys = tuple(f"reward/{name}" for name in terms)
        self._terms = []
        for name, config in terms.items():
            path = f"env.rewards.{name}"
            function = resolve_term(rewards, config.function, config.params, ("env",), path)
            value = first_value(function, view, config.params, path)
            check_shape(path, value.shape, (view.num_envs,))
            self._terms.append((function, config.params))
        self.weights: FloatArray = np.array([c.weight for c in terms.values()], np.float32)
        """Per term; a curriculum may change them."""
        self._dt_s = np.float32(view.step_dt_s)
        self._flat: FloatArray = np.zeros(len(terms) * view.num_envs, np.float32)
        self._raw = self._flat.reshape(len(terms), view.num_envs)
        self._average = np.full(view.num_envs, 1.0 / view.num_envs, np.float32)
        self._means: FloatArray = np.zeros(len(terms), np.float32)

    def compute(self, view: TermView, unstable: BoolArray | None, reward: FloatArray) -> None:
        """Fill `reward` [E]; environments whose physics broke get 0."""
        values = [function(view, **params) for function, params in self._terms]
        np.concatenate(values, out=self._flat)
        if unstable is not None:
            self._raw[:, unstable] = 0.0
        np.dot(self.weights * self._dt_s, self._raw, out=reward)
        np.dot(self._raw, self._average, out=self._means)
        np.multiply(self._means, self.weights, out=self._means)

    def log(self, into: dict[str, float]) -> None:
        """Mean over environments of raw value x weight, before dt."""
        into.update(zip(self.log_keys, self._means.tolist(), strict=True))
