"""Jobs of a sweep, some at a time; what stops the sweep stops the jobs that run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")


def run_side_by_side(
    tasks: Sequence[Callable[[threading.Event], T]], jobs: int, show: Callable[[T, int, int], None]
) -> list[T]:
    """Results in the order in which they came.

    Args:
        tasks: each gets the event that tells it to end what it has started.
        jobs: how many run at a time.
        show: called with each result, how many there are now, and how many there will be.
    """
    stop = threading.Event()
    done: list[T] = []
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(task, stop) for task in tasks]
        try:
            for future in as_completed(futures):
                done.append(future.result())
                show(done[-1], len(done), len(tasks))
        except BaseException:
            stop.set()  # the jobs that run are ended before their folders go
            pool.shutdown(cancel_futures=True)
            raise
    return done
