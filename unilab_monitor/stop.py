"""Ctrl-C in the launcher's panel: ask exactly this job's launcher to stop.

The launcher is identified by pid and start ticks from its own row of the board and addressed
through a pidfd (`unilab_ipc.peers` is the only place that sends signals), so a reused pid is never
hit. What a first, second and third request mean is the launcher's to decide.
"""

import signal
from collections.abc import Callable

from unilab_ipc.errors import PeerDead
from unilab_ipc.heartbeat import RoleStatus


class LauncherStop:
    """A callable for the application: sends one SIGINT per call.

    Args:
        launcher: the launcher's row as it is now; None while the board is not mapped.
    """

    def __init__(self, launcher: Callable[[], RoleStatus | None]) -> None:
        self._launcher = launcher

    def __call__(self) -> str | None:
        """Send the request; a text when it could not be sent."""
        row = self._launcher()
        if row is None:
            return "The job is not attached yet: try again in a moment"
        peer = row.peer()
        try:
            peer.open().send_signal(signal.SIGINT)
        except PeerDead:
            return "The launcher has ended already"
        finally:
            peer.close()
        return None
