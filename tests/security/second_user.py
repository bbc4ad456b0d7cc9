"""Run a function as another user, in a forked child: the tests about a second uid need root."""

import os
import traceback

import pytest

OTHER_UID = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


def as_other_user(function) -> int:
    """What `function` returns (a small int), called with another uid; 255 where it raised."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            os.setgroups([])
            os.setgid(OTHER_UID)
            os.setuid(OTHER_UID)
            code = function()
        except BaseException:  # noqa: BLE001 - the entry point of the child
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def refusals(attempts) -> int:
    """How many of the attempts raise PermissionError or one of our own refusals."""
    from unilab_ipc.errors import IpcError

    refused = 0
    for attempt in attempts:
        try:
            attempt()
        except (PermissionError, IpcError, ValueError):
            refused += 1
    return refused
