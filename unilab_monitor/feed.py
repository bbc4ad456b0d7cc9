"""The feed: a thread that polls a source twice a second, folds, and hands the view on.

Where pictures are dear (a slow or full processor), there are fewer, down to one in two seconds: a
monitor may cost a job that needs every core 2 % of one. Beyond 40 ms a picture it costs more.

It knows no widget: `deliver` is whatever the caller passes (the drawn monitor posts a message). One
view per turn, however many records came in. A failure of the source ends the feed and is delivered
through `fail`; nothing else stops it but `close()`.
"""

import threading
import time
from collections.abc import Callable

from unilab_ipc.errors import IpcError
from unilab_monitor.model import Model
from unilab_monitor.sources import Source
from unilab_monitor.view import View

PERIOD_S = 0.5
LONGEST_PERIOD_S = 2.0
"""Below the time that the launcher gives its panel to show the end and leave."""
CPU_FRAC = 0.02
"""Of one core, for all that this process does, pages about traces included."""
_WEIGHT_OF_A_TURN = 0.1
JOIN_S = 2.0
"""Longest wait for a turn in progress; a pause ends at once."""


class Pace:
    """The pause between two pictures.

    Args:
        period_s: the pause where pictures are cheap enough.
    """

    def __init__(self, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._before_s: float | None = None
        self._mean_s = 0.0

    def pause_s(self, cpu_s: float) -> float:
        """The pause after a turn.

        Args:
            cpu_s: processor time of this process so far, the drawing of all turns but the last
                included.
        """
        if self._before_s is not None:
            # A mean, so that one dear turn (the first, a resize) is not answered by a long pause.
            self._mean_s += _WEIGHT_OF_A_TURN * (cpu_s - self._before_s - self._mean_s)
        self._before_s = cpu_s
        longest_s = max(LONGEST_PERIOD_S, self._period_s)
        return min(max(self._mean_s / CPU_FRAC, self._period_s), longest_s)


class Feed:
    """Polls until closed."""

    def __init__(
        self,
        source: Source,
        *,
        deliver: Callable[[View], None],
        fail: Callable[[IpcError], None],
        pace: Pace | None = None,
    ) -> None:
        self._source = source
        self._deliver = deliver
        self._fail = fail
        self._pace = Pace() if pace is None else pace
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor-feed", daemon=True)

    def start(self) -> None:
        """Begin; the first view is delivered at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the turn in progress and let go of the source."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=JOIN_S)
        self._source.close()

    def _run(self) -> None:
        model = Model()
        while not self._closing.is_set():
            try:
                view = model.fold(self._source.poll())
            except IpcError as error:
                self._fail(error)
                return
            self._deliver(view)
            self._closing.wait(self._pace.pause_s(time.process_time()))
