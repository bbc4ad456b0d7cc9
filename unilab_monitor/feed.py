"""The feed: a thread that polls a source twice a second, folds, and hands the view on.

It knows no widget: `deliver` is whatever the caller passes (the drawn monitor posts a message). One
view per turn, however many records came in. A failure of the source ends the feed and is delivered
through `fail`; nothing else stops it but `close()`.
"""

import threading
from collections.abc import Callable

from unilab_ipc.errors import IpcError
from unilab_monitor.model import Model
from unilab_monitor.sources import Source
from unilab_monitor.view import View

PERIOD_S = 0.5


class Feed:
    """Polls until closed."""

    def __init__(
        self,
        source: Source,
        *,
        deliver: Callable[[View], None],
        fail: Callable[[IpcError], None],
        period_s: float = PERIOD_S,
    ) -> None:
        self._source = source
        self._deliver = deliver
        self._fail = fail
        self._period_s = period_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor-feed", daemon=True)

    def start(self) -> None:
        """Begin; the first view is delivered at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the turn in progress and let go of the source."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=2 * self._period_s + 1.0)
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
            self._closing.wait(self._period_s)
