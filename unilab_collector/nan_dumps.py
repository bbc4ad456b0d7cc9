"""Where the NaN guard's dumps go: few of them, atomically, and never a reason to fail."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unilab_collector.state_history import StateHistory
from unilab_core.contracts import EnvSpec, IdArray
from unilab_core.run.nan_dump import NanDump, write_nan_dump

MAX_DUMPS = 5
"""A run that drops episodes for days must not fill the disk."""

log = logging.getLogger(__name__)


class NanDumps:
    """Writes `<folder>/nan_<step>_<source>.npz`, at most MAX_DUMPS files of one process."""

    def __init__(
        self,
        folder: Path,
        *,
        spec: EnvSpec,
        env_config: Mapping[str, Any],
        max_envs: int,
        rank: int = 0,
    ) -> None:
        self._folder = folder
        self._spec = spec
        self._env_config = dict(env_config)
        self._max_envs = max_envs
        self._rank = rank
        self._left = MAX_DUMPS

    def write(
        self,
        history: StateHistory,
        *,
        source: str,
        kind: str,
        step: int,
        ids: IdArray,
        after: Mapping[str, NDArray[Any]],
    ) -> str | None:
        """The file, or None when enough were written or the disk refuses."""
        if self._left == 0:
            return None
        self._left -= 1
        envs = ids[: self._max_envs]
        fields = history.last(envs)
        count = len(fields["reward"])
        spec = self._spec
        dump = NanDump(
            meta={
                "source": source,
                "kind": kind,
                "env": int(ids[0]),
                "step": step,
                "num_bad_envs": len(ids),
                "rank": self._rank,
                "task": spec.task,
                "sim": spec.sim,
                "env_config": self._env_config,
                "terms": {
                    "obs": [[name, width] for name, width in spec.obs_terms],
                    "critic_obs": [[name, width] for name, width in spec.critic_obs_terms],
                },
                "time_utc": datetime.now(UTC).isoformat(timespec="milliseconds"),
            },
            steps=np.arange(step - count + 1, step + 1),
            envs=envs,
            fields=fields,
            after={name: np.array(values[envs]) for name, values in after.items()},
        )
        path = self._folder / f"nan_{step:08d}_{source.replace(' ', '_')}.npz"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_nan_dump(path, dump)
        except OSError as error:  # the bad value is the story, not the disk
            log.warning("no dump of the last states: %s", error)
            return None
        return str(path)
