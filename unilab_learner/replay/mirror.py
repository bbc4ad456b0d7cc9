"""Left/right mirror images of replay rows: free data for a robot whose two sides are alike.

A walk seen in a mirror is a walk: observations, actions and next observations are mirrored
together, the reward stays.
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

    def every_second(self, rows: ReplayRows) -> ReplayRows:
        """The same rows, with rows 1, 3, 5, ... mirrored; changes `rows` in place."""
        for part, image in (
            (rows.obs, self._obs),
            (rows.next_obs, self._obs),
            (rows.critic_obs, self._critic_obs),
            (rows.next_critic_obs, self._critic_obs),
            (rows.action, self._action),
        ):
            index, sign = image
            # Indexing copies, so that the assignment does not read what it has just written.
            part[1::2] = part[1::2][:, index] * sign
        return rows


def mirror_of(spec: EnvSpec, device: torch.device) -> Mirror:
    """The mirror of a task; a ConfigError where it has none."""
    if spec.symmetry is None:
        raise ConfigError(
            f"algo.symmetry_augmentation: {spec.task} has no known mirror image; use false"
        )
    return Mirror(spec.symmetry, device)


def _on(image: MirrorMap, device: torch.device) -> tuple[Tensor, Tensor]:
    index = torch.tensor(image.index, device=device)
    sign = torch.tensor(image.sign, dtype=torch.float32, device=device)
    return index, sign
