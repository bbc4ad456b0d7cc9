"""The one way to wait for another process.

`Waiter.wait` looks first, then polls {own doorbell, pidfds of the peers} and looks again after each
wake-up. It never spins and never sleeps: it ends because `try_fn` found something, a peer died, a
stop was requested, or the time limit passed.

The stop flag is read after each wake-up, so whoever sets it must ring: the launcher rings after a
stop request, and `Doorbell.wake_on_signals` makes the process's own signal handlers ring.

# SYNC POINT: bell (drain before looking again, so that a ring between the two is never lost)
"""

import select
from collections.abc import Callable, Sequence
from typing import TypeVar

from unilab_ipc.clock import Clock, MonotonicClock
from unilab_ipc.doorbell import Doorbell
from unilab_ipc.errors import Closed, PeerTimeout
from unilab_ipc.heartbeat import ROLES, RoleBeat
from unilab_ipc.peers import Peer

T = TypeVar("T")

SLICE_MS = 1000
"""Longest single poll: the beat of a waiting role is never older than this."""


class Waiter:
    """Waits of one role. `peers` must be open; `stop` says whether a stop was requested."""

    __slots__ = ("_beat", "_bell", "_bell_fd", "_clock", "_peer_of_fd", "_poll", "_stop")

    def __init__(
        self,
        bell: Doorbell,
        peers: Sequence[Peer],
        stop: Callable[[], bool],
        beat: RoleBeat | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._bell = bell
        self._bell_fd = bell.fileno()
        self._peer_of_fd = {peer.fileno(): peer for peer in peers}
        self._stop = stop
        self._beat = beat
        self._clock = clock if clock is not None else MonotonicClock()
        self._poll = select.poll()
        self._poll.register(self._bell_fd, select.POLLIN)
        for fd in self._peer_of_fd:
            self._poll.register(fd, select.POLLIN)

    def wait(
        self,
        try_fn: Callable[[], T | None],
        *,
        timeout_s: float | None,
        awaits: str,
        heed_stop: bool = True,
    ) -> T:
        """The first result of `try_fn` that is not None.

        Raises Closed (stop requested and heeded), PeerDead (at once, after one last look) or
        PeerTimeout. `timeout_s=None` waits as long as the peers live. `awaits` names the role
        waited for; where it is one of ROLES, the heartbeat board shows it for the time of the wait.
        """
        found = try_fn()
        if found is not None:
            return found
        beat = self._beat
        if beat is None:
            return self._wait_slow(try_fn, timeout_s, awaits, heed_stop)
        before = beat.awaiting(awaits if awaits in ROLES else None)
        try:
            return self._wait_slow(try_fn, timeout_s, awaits, heed_stop)
        finally:
            beat.restore_awaits(before)

    def _wait_slow(
        self,
        try_fn: Callable[[], T | None],
        timeout_s: float | None,
        awaits: str,
        heed_stop: bool,
    ) -> T:
        now_ns = self._clock.now_ns
        deadline_ns = None if timeout_s is None else now_ns() + round(timeout_s * 1e9)
        slice_ms = SLICE_MS
        while True:
            if heed_stop and self._stop():
                raise Closed(f"stopped while waiting for {awaits}")
            if deadline_ns is not None:
                rest_ns = deadline_ns - now_ns()
                if rest_ns <= 0:
                    raise PeerTimeout(awaits, timeout_s or 0.0)
                slice_ms = min(SLICE_MS, -(-rest_ns // 1_000_000))
            dead = self._sleep(slice_ms)
            found = try_fn()
            if found is not None:
                return found
            if dead is not None:
                raise dead.dead_error()

    def _sleep(self, slice_ms: int) -> Peer | None:
        """Poll once; returns a peer that has ended, if any."""
        dead: Peer | None = None
        for fd, _ in self._poll.poll(slice_ms):
            if fd == self._bell_fd:
                # SYNC POINT: bell
                self._bell.drain()
            elif dead is None:
                dead = self._peer_of_fd[fd]
        if self._beat is not None:
            self._beat.beat()
        return dead
