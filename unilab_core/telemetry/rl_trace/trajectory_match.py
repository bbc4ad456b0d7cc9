"""What trajectory lines and sample flow know of each other; only what is new is looked up."""

from __future__ import annotations

from collections.abc import Mapping

from unilab_core.telemetry.rl_trace.flow_ids import FlowIds
from unilab_core.telemetry.rl_trace.trajectory_index import TrajectoryIndex


class TrajectoryMatch:
    """Trajectory lines with their sample flow, and the sizes of its prompts."""

    def __init__(self, ids: FlowIds, index: TrajectoryIndex) -> None:
        self.num_with_flow = 0
        """Trajectory lines whose trajectory is in the sample flow."""
        self._ids = ids
        self._index = index
        self._checked = 0
        self._without_flow: list[int] = []
        self._sizes: dict[int, int] = {}
        self._sizes_job = -1

    def update(self, job: int) -> None:
        """Look up lines that are new or had no sample flow yet."""
        index = self._index
        entries = [*self._without_flow, *range(self._checked, len(index))]
        self._checked = len(index)
        names = [f"{index.uids[entry]}/{index.indices[entry]}" for entry in entries]
        codes = self._ids.find(job, names)
        left = [entry for entry, code in zip(entries, codes, strict=True) if code < 0]
        self.num_with_flow += len(entries) - len(left)
        self._without_flow = left

    def group_sizes(self, job: int) -> Mapping[int, int]:
        """Number of each prompt of the job to its trajectories per prompt, as the lines say."""
        changed = self._index.changed_groups
        if job != self._sizes_job:
            self._sizes, self._sizes_job = {}, job
            changed.update(dict.fromkeys(self._index.group_sizes))
        if job < 0:
            return {}
        unseen: dict[str, None] = {}
        for name in changed:
            uid = self._ids.find_uid(job, name)
            if uid < 0:  # may still come
                unseen[name] = None
            else:
                self._sizes[uid] = self._index.group_sizes[name]
        changed.clear()
        changed.update(unseen)
        return self._sizes
