"""ObservationManager: groups of terms -> one float32 matrix per group.

Each term's value passes noise, clip and scale, in this order, then joins the term's history. A
group is gathered column-wise (contiguous writes) and transposed once into its row-wise matrix.
Leading critic terms with the settings of the policy's copy its columns instead of computing them.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from unilab_core.config.env import CRITIC_GROUP, POLICY_GROUP, ObservationTermConfig
from unilab_core.contracts import FloatArray, IdArray
from unilab_core.envs.columns import column_block
from unilab_core.envs.managers.resolve import first_value, resolve_term
from unilab_core.envs.mdp import observations
from unilab_core.envs.term_view import TermView

Groups = dict[str, dict[str, ObservationTermConfig]]


class ObservationManager:
    """Both groups; a task without a critic group shows its critic what the policy sees."""

    def __init__(
        self, groups: Groups, *, noise: bool, rng: np.random.Generator, view: TermView
    ) -> None:
        policy_terms = groups[POLICY_GROUP]
        critic_terms = groups.get(CRITIC_GROUP, policy_terms)
        self._policy = _Group(POLICY_GROUP, policy_terms, None, noise, rng, view)
        self._critic = _Group(CRITIC_GROUP, critic_terms, self._policy, noise, rng, view)
        self._rows: dict[int, tuple[FloatArray, FloatArray]] = {}
        self.policy_terms = self._policy.widths
        self.critic_terms = self._critic.widths
        self.policy_width = self._policy.width
        self.critic_width = self._critic.width

    def compute(self, view: TermView, obs: FloatArray, critic_obs: FloatArray) -> None:
        """Fill `obs` [E, O] and `critic_obs` [E, C] for all environments."""
        policy = self._policy.gather(view, self._policy.block, None)
        np.copyto(obs, policy.T)
        critic = self._critic.gather(view, self._critic.block, None)
        shared = self._critic.num_shared_leading
        np.copyto(critic_obs[:, :shared], obs[:, :shared])
        np.copyto(critic_obs[:, shared:], critic[shared:].T)

    def compute_rows(
        self, view: TermView, ids: IdArray, obs: FloatArray, critic_obs: FloatArray
    ) -> None:
        """Fill the rows `ids`, first observations of an episode; `view` holds only these."""
        blocks = self._row_blocks(len(ids))
        policy = self._policy.gather(view, blocks[0], ids)
        obs[ids] = policy.T
        critic = self._critic.gather(view, blocks[1], ids)
        shared = self._critic.num_shared_leading
        critic[:shared] = policy[:shared]
        critic_obs[ids] = critic.T

    def _row_blocks(self, num_rows: int) -> tuple[FloatArray, FloatArray]:
        found = self._rows.get(num_rows)
        if found is None:
            found = (
                column_block(self.policy_width, num_rows),
                column_block(self.critic_width, num_rows),
            )
            self._rows[num_rows] = found
        return found


class _Term:
    """One term: how its columns are filled."""

    def __init__(
        self,
        path: str,
        config: ObservationTermConfig,
        start: int,
        rng: np.random.Generator,
        view: TermView,
    ) -> None:
        self.config = config
        self._function = resolve_term(observations, config.function, config.params, ("env",), path)
        self._params: dict[str, Any] = config.params
        self._rng = rng
        value = first_value(self._function, view, self._params, path)
        if value.ndim > 2 or value.shape[0] != view.num_envs:
            raise ValueError(f"{path}: got shape {value.shape}, expected ({view.num_envs}, width)")
        self.frame_width = 1 if value.ndim == 1 else value.shape[1]
        self.width = self.frame_width * config.history
        self.columns = slice(start, start + self.width)
        self._altered = bool(config.noise) or config.clip is not None or config.scale != 1.0
        # Oldest frame first; only terms with a history keep one.
        self._frames = column_block(self.width, view.num_envs) if config.history > 1 else None
        self.is_plain = not self._altered and self._frames is None and value.ndim == 2

    def read(self, view: TermView) -> FloatArray:
        """The term's value as its function gives it, [E, w]."""
        return self._function(view, **self._params)

    def fill(self, view: TermView, block: FloatArray, ids: IdArray | None) -> None:
        """Write this term's columns of `block`; `ids` are the rows of a new episode."""
        columns = block[self.columns]
        newest = columns[self.width - self.frame_width :]
        np.copyto(newest, self.read(view).T)
        if self._altered:
            self._alter(newest)
        if self._frames is not None:
            self._remember(self._frames, columns, newest, ids)

    def _alter(self, values: FloatArray) -> None:
        config = self.config
        if config.noise:
            noise = self._rng.random(values.shape, dtype=np.float32)
            noise -= np.float32(0.5)
            noise *= np.float32(2.0 * config.noise)
            np.add(values, noise, out=values)
        if config.clip is not None:
            np.clip(values, *config.clip, out=values)
        if config.scale != 1.0:
            np.multiply(values, np.float32(config.scale), out=values)

    def _remember(
        self, frames: FloatArray, columns: FloatArray, newest: FloatArray, ids: IdArray | None
    ) -> None:
        """Shift the history by a frame; a new episode starts with copies of its first frame."""
        if ids is None:
            frames[: -self.frame_width] = frames[self.frame_width :]
            frames[-self.frame_width :] = newest
            np.copyto(columns, frames)
        else:
            np.copyto(columns, np.tile(newest, (self.config.history, 1)))
            frames[:, ids] = columns


class _Group:
    """The terms of one matrix."""

    def __init__(
        self,
        group: str,
        terms: dict[str, ObservationTermConfig],
        shown: "_Group | None",
        noise: bool,
        rng: np.random.Generator,
        view: TermView,
    ) -> None:
        self._terms: list[_Term] = []
        start = 0
        for name, config in terms.items():
            active = config if noise else replace(config, noise=0.0)
            term = _Term(f"env.observations.{group}.{name}", active, start, rng, view)
            self._terms.append(term)
            start += term.width
        self.width = start
        self.widths = tuple(
            (name, term.width) for name, term in zip(terms, self._terms, strict=True)
        )
        self.block = column_block(self.width, view.num_envs)
        num_shared = 0 if shown is None else self._count_shared(shown)
        self.num_shared_leading = sum(term.width for term in self._terms[:num_shared])
        self._own = self._terms[num_shared:]
        self._all_plain = bool(self._own) and all(term.is_plain for term in self._own)

    def gather(self, view: TermView, block: FloatArray, ids: IdArray | None) -> FloatArray:
        """Fill the columns that are not taken over from the policy group."""
        if self._all_plain:
            values = [term.read(view).T for term in self._own]
            np.concatenate(values, out=block[self.num_shared_leading :])
        else:
            for term in self._own:
                term.fill(view, block, ids)
        return block

    def _count_shared(self, shown: "_Group") -> int:
        """Leading terms that equal the policy's; noise is drawn apart for each group."""
        count = 0
        for mine, theirs in zip(self._terms, shown._terms, strict=False):
            if mine.config != theirs.config or mine.config.noise:
                break
            count += 1
        return count
