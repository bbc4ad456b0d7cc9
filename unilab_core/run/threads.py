"""CPU threads of each role; the sum never exceeds the cores by more than two."""

import os
from dataclasses import dataclass

from unilab_core.config.training import TorchThreadsConfig


@dataclass(kw_only=True, slots=True, frozen=True)
class ThreadPlan:
    """Threads of both roles on this machine; None leaves a library at its own default."""

    learner: int | None
    collector: int | None


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def plan_threads(config: TorchThreadsConfig, cores: int) -> ThreadPlan:
    """Resolve `auto`.

    The roles overlap only partly: the collector sleeps while the learner infers, and the learner's
    update is the longer part. So the learner gets all cores up to two and half of them beyond, the
    collector half.
    """
    if not config.enabled:
        return ThreadPlan(learner=None, collector=None)
    half = max(1, cores // 2)
    learner = min(cores, max(2, half))
    asked_learner, asked_collector = config.learner_num_threads, config.collector_num_threads
    return ThreadPlan(
        learner=learner if asked_learner == "auto" else asked_learner,
        collector=half if asked_collector == "auto" else asked_collector,
    )
