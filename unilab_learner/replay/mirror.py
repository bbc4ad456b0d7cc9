"""Left/right mirror images of training data: free data for a robot whose two sides are alike.

A walk seen in a mirror is a walk: observations, actions and next observations are mirrored
together, the reward stays. A mirrored rollout is one of the mirrored policy, so the probabilities
that were recorded for it stay as they are.
"""

import torch
from torch import Tensor

from unilab_core.config.errors import ConfigError
from unilab_core.contracts import EnvSpec, MirrorMap, Symmetry
from unilab_learner.replay.buffer import ReplayRows


class Mirror:
    """The maps of one task on one device."""

    def __init__(self, symmetry: Symmetry, device: torch.device) -> None:
        self._obs = _on(symmetry.obs, device)
        self._critic_obs = _on(symmetry.critic_obs, device)
        self._action = _on(symmetry.action, device)

    @classmethod
    def of(cls, spec: EnvSpec, device: torch.device) -> "Mirror":
        """The mirror of a task.

        Raises:
            ConfigError: the task has none.
        """
        if spec.symmetry is None:
            raise ConfigError(
                f"algo.symmetry_augmentation: {spec.task} has no known mirror image; use false"
            )
        return cls(spec.symmetry, device)

    def obs(self, rows: Tensor) -> Tensor:
        """The image of rows[..., O]."""
        return _image(rows, self._obs)

    def critic_obs(self, rows: Tensor) -> Tensor:
        """The image of rows[..., C]."""
        return _image(rows, self._critic_obs)

    def action(self, rows: Tensor) -> Tensor:
        """The image of rows[..., A] of actions or of their means."""
        return _image(rows, self._action)

    def spread(self, rows: Tensor) -> Tensor:
        """The image of rows[..., A] of standard deviations: they change sides, not sign."""
        return rows[..., self._action[0]]

    def every_second(self, rows: ReplayRows) -> ReplayRows:
        """The same rows, with rows 1, 3, 5, ... mirrored; changes `rows` in place."""
        for part, image in (
            (rows.obs, self._obs),
            (rows.next_obs, self._obs),
            (rows.critic_obs, self._critic_obs),
            (rows.next_critic_obs, self._critic_obs),
            (rows.action, self._action),
        ):
            part[1::2] = _image(part[1::2], image)
        return rows


def _image(rows: Tensor, image: tuple[Tensor, Tensor]) -> Tensor:
    index, sign = image
    return rows[..., index] * sign  # indexing copies: the result never shares memory with `rows`


def _on(image: MirrorMap, device: torch.device) -> tuple[Tensor, Tensor]:
    index = torch.tensor(image.index, device=device)
    sign = torch.tensor(image.sign, dtype=torch.float32, device=device)
    return index, sign
