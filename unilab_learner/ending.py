"""What the training loops agree on: when a session ends, and which return is the newest."""

from collections.abc import Mapping, Sequence
from typing import Any

from unilab_core.config.config import Config
from unilab_ipc.errors import Closed
from unilab_ipc.heartbeat import STOP_NOW, STOP_SAVE


def end_reason(config: Config, *, iteration: int, elapsed_s: float, stop_level: int) -> str | None:
    """Why the session ends now: stopped, completed or wall_time; None while it goes on.

    Raises:
        Closed: a stop without saving.
    """
    limit_s = config.training.max_wall_time_s
    if stop_level >= STOP_NOW:
        raise Closed("stopped without saving")
    if stop_level >= STOP_SAVE:
        return "stopped"
    if iteration >= config.algo.max_iterations:
        return "completed"
    if limit_s is not None and elapsed_s >= limit_s:
        return "wall_time"
    return None


def newest_mean_return(records: Sequence[Mapping[str, Any]], before: float | None) -> float | None:
    """Mean return of the last 100 episodes as the newest collector record has it."""
    for record in reversed(records):
        mean_return = record.get("episodes", {}).get("mean_return")
        if mean_return is not None:
            return float(mean_return)
    return before
