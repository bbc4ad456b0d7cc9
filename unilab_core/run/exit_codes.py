"""Exit codes of every command and of every child process."""

import signal
from enum import IntEnum


class ExitCode(IntEnum):
    """What a script may rely on; the README lists the same table."""

    OK = 0
    """Done."""
    USAGE = 2
    """A setting, an argument or a path that the user can correct."""
    NAME_IN_USE = 3
    """A live run has this job name."""
    NO_SPACE = 4
    """Not enough memory or disk at the start."""
    INCOMPATIBLE = 5
    """A segment or checkpoint of another version, or a damaged one."""
    NOTHING = 6
    """Nothing to attach to."""
    PROCESS_DIED = 10
    """A process of the job died; the message names role, pid, cause and phase."""
    ENV_EXCEPTION = 11
    """The environment raised an exception."""
    NON_FINITE = 12
    """A value that is not finite, with its source, environment and step."""
    HANG = 13
    """A process stood still for longer than its limit."""
    FINAL_SAVE_FAILED = 14
    """Training ended, but its last checkpoint could not be written."""


UNEXPECTED = 1
"""Exit code of a child whose exception is none of the above; the launcher reports PROCESS_DIED."""


def exit_code_of_signal(signum: int) -> int:
    """The shell's convention: 129 after SIGHUP, 130 after SIGINT, 143 after SIGTERM."""
    return 128 + signum


def describe_status(returncode: int) -> str:
    """A child's return code in words: `SIGKILL` or `exit code 7`."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"
