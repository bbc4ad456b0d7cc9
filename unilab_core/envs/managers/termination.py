"""TerminationManager: which episodes end, and why.

Beside the configured terms there is always `unstable`: physics that became non-finite or ran away
ends its episode as terminated.
"""

import numpy as np

from unilab_core.config.env import TerminationTermConfig
from unilab_core.contracts import BoolArray, IdArray
from unilab_core.envs.managers.resolve import check_shape, first_value, resolve_term
from unilab_core.envs.mdp import terminations
from unilab_core.envs.term_view import TermView

UNSTABLE = "unstable"


class TerminationManager:
    """All termination terms; keeps the masks of the last step."""

    def __init__(self, terms: dict[str, TerminationTermConfig], view: TermView) -> None:
        self.names = (*terms, UNSTABLE)
        self.log_keys = tuple(f"Episode_Termination/{name}" for name in self.names)
        self._terms = []
        for name, config in terms.items():
            path = f"env.terminations.{name}"
            function = resolve_term(terminations, config.function, config.params, ("env",), path)
            value = first_value(function, view, config.params, path)
            check_shape(path, value.shape, (view.num_envs,))
            self._terms.append((function, config.params, config.time_out))
        kinds = [config.time_out for config in terms.values()]
        self._time_outs = [index for index, time_out in enumerate(kinds) if time_out]
        self._falls = [index for index, time_out in enumerate(kinds) if not time_out]
        self._masks: list[BoolArray] = []
        self._unstable: BoolArray | None = None
        self._none = dict.fromkeys(self.log_keys, 0.0)
        self.done: BoolArray = np.zeros(view.num_envs, np.bool_)

    def compute(
        self,
        view: TermView,
        unstable: BoolArray | None,
        terminated: BoolArray,
        truncated: BoolArray,
    ) -> None:
        """Fill both masks [E]; an episode that fell in its last step is terminated only."""
        self._masks = [function(view, **params) for function, params, _ in self._terms]
        falls = [] if unstable is None else [unstable]
        falls += [self._masks[index] for index in self._falls]
        _any_of(falls, terminated)
        _any_of([self._masks[index] for index in self._time_outs], truncated)
        np.greater(truncated, terminated, out=truncated)
        np.logical_or(terminated, truncated, out=self.done)
        self._unstable = unstable

    def log(self, ids: IdArray, truncated: BoolArray, into: dict[str, float]) -> None:
        """How many of the environments reset in this step each term ended."""
        if not len(ids):
            into.update(self._none)
            return
        unstable = self._unstable
        for key, (_, _, time_out), mask in zip(
            self.log_keys, self._terms, self._masks, strict=False
        ):
            ended = mask[ids]
            if time_out:  # one that also fell counts as a fall
                ended &= truncated[ids]
            into[key] = float(np.count_nonzero(ended))
        into[self.log_keys[-1]] = float(0 if unstable is None else np.count_nonzero(unstable))


def _any_of(masks: list[BoolArray], out: BoolArray) -> None:
    """Union of the masks, with as few passes as there are masks."""
    if len(masks) < 2:
        np.copyto(out, masks[0] if masks else False)
        return
    np.logical_or(masks[0], masks[1], out=out)
    for mask in masks[2:]:
        np.logical_or(out, mask, out=out)
