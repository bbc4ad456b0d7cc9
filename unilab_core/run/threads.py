"""CPU threads of each role, by how much the roles' work overlaps.

SAC, FlashSAC   partly   the sum exceeds the cores by at most two
PPO             never    the roles take turns, so each may use every core
APPO            always   the cores are divided
"""

import os
from dataclasses import dataclass

from unilab_core.config.algo import Overlap
from unilab_core.config.training import TorchThreadsConfig


@dataclass(kw_only=True, slots=True, frozen=True)
class ThreadPlan:
    """Threads of both roles on this machine; None leaves a library at its own default."""

    learner: int | None
    collector: int | None


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def plan_threads(config: TorchThreadsConfig, cores: int, overlap: Overlap = "partly") -> ThreadPlan:
    """Resolve `auto`.

    Where the roles overlap partly, the collector sleeps while the learner infers, and the learner's
    update is the longer part. So the learner gets all cores up to two and half of them beyond, the
    collector half.
    """
    if not config.enabled:
        return ThreadPlan(learner=None, collector=None)
    half = max(1, cores // 2)
    learner, collector = min(cores, max(2, half)), half
    if overlap == "never":
        learner = collector = cores
    elif overlap == "always":
        learner = max(1, cores - half)
    asked_learner, asked_collector = config.learner_num_threads, config.collector_num_threads
    return ThreadPlan(
        learner=learner if asked_learner == "auto" else asked_learner,
        collector=collector if asked_collector == "auto" else asked_collector,
    )
