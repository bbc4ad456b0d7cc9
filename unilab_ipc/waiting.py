"""The one way to wait for another process.

`Waiter.wait` looks first, then polls {own doorbell, pidfds of the peers} and looks again after each
wake-up. It never spins and never sleeps: it ends because `try_fn` found something, a peer died, a
stop was requested, or the time limit passed.

The stop flag is read after each wake-up, so whoever sets it must ring: the launcher rings after a
stop request, and `Doorbell.wake_on_signals` makes the process's own signal handlers ring.

A wake-up looks before it drains: the drain is a system call that would lie in the way of every
answer. The rings it leaves behind are drained when the next wait begins, while the peer works.

# SYNC POINT: bell (never poll without a look since the last drain: a ring between is not lost)
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

SLICE_S = 1.0
"""Longest single poll: the beat of a waiting role is never older than this."""


class Waiter:
    """Waits of one role. `peers` must be open; `stop` says whether a stop was requested."""

    __slots__ = ("_beat", "_bell", "_bell_fd", "_clock", "_epoll", "_peer_of_fd", "_rung", "_stop")

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
        self._rung = False
        self._stop = stop
        self._beat = beat
        self._clock = clock if clock is not None else MonotonicClock()
        # epoll, not poll: the descriptors are looked at once here instead of twice in every wait.
        self._epoll = select.epoll()
        self._epoll.register(self._bell_fd, select.EPOLLIN)
        for fd in self._peer_of_fd:
            self._epoll.register(fd, select.EPOLLIN)

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
        if self._rung:
            # SYNC POINT: bell
            self._rung = False
            self._bell.drain()
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
        slice_s = SLICE_S
        # What runs between the wake-up and the look is latency of every round trip: local names,
        # one comparison for the usual single event, nothing else.
        poll, bell_fd, beat = self._epoll.poll, self._bell_fd, self._beat
        while True:
            if heed_stop and self._stop():
                raise Closed(f"stopped while waiting for {awaits}")
            if deadline_ns is not None:
                rest_ns = deadline_ns - now_ns()
                if rest_ns <= 0:
                    raise PeerTimeout(awaits, timeout_s or 0.0)
                slice_s = min(SLICE_S, rest_ns / 1e9)
            dead: Peer | None = None
            for fd, _ in poll(slice_s):
                if fd == bell_fd:
                    self._rung = True
                elif dead is None:
                    dead = self._peer_of_fd[fd]
            found = try_fn()
            if found is not None:
                return found
            if beat is not None:
                beat.beat()
            if dead is not None:
                raise dead.dead_error()
            if self._rung:
                # SYNC POINT: bell
                self._rung = False
                self._bell.drain()
                found = try_fn()
                if found is not None:
                    return found
