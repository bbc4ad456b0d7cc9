"""What ended a run: Failure (who, why, where) and Outcome (the exit code and the words for it)."""

import signal
from dataclasses import dataclass

from unilab_core.run.exit_codes import ExitCode, describe_status, exit_code_of_signal
from unilab_core.telemetry.plain import sanitize

# Exit codes that a child may pass on as the job's; any other non-zero one means "a process died".
PASSED_ON = frozenset(
    {
        ExitCode.USAGE,
        ExitCode.NO_SPACE,
        ExitCode.INCOMPATIBLE,
        ExitCode.ENV_EXCEPTION,
        ExitCode.NON_FINITE,
        ExitCode.FINAL_SAVE_FAILED,
    }
)


@dataclass(kw_only=True, slots=True, frozen=True)
class Failure:
    """One process that failed, or a step of the launcher itself."""

    exit_code: int
    role: str
    rank: int
    pid: int
    cause: str
    """In words: `SIGKILL`, `EnvError: ...`, `no progress for 60 s`."""
    phase: str
    blames: str | None = None
    """Role whose death this failure only follows from."""

    def line(self) -> str:
        """Role, pid, cause and phase on one line."""
        cause = sanitize(self.cause, 300)
        return f"{self.role}-{self.rank} (pid {self.pid}) {cause} in phase {self.phase}"


@dataclass(kw_only=True, slots=True, frozen=True)
class ChildExit:
    """A child has ended; what is known about it."""

    role: str
    rank: int
    pid: int
    returncode: int
    """As subprocess has it: negative for a signal."""
    phase: str
    """Last phase on the heartbeat board."""
    error: dict | None = None
    """Its error.json, where it wrote one."""
    max_rss_bytes: int = 0

    def failure(self) -> Failure | None:
        """None for a clean exit."""
        if self.returncode == 0:
            return None
        cause, blames, phase = self._cause()
        code = self.returncode if self.returncode in PASSED_ON else ExitCode.PROCESS_DIED
        return Failure(
            exit_code=int(code),
            role=self.role,
            rank=self.rank,
            pid=self.pid,
            cause=cause,
            phase=phase,
            blames=blames,
        )

    def _cause(self) -> tuple[str, str | None, str]:
        if self.returncode < 0:
            rss = f", peak memory {self.max_rss_bytes >> 20} MiB" if self.max_rss_bytes else ""
            return f"died: {describe_status(self.returncode)}{rss}", None, self.phase
        if self.error is None:
            return f"died: {describe_status(self.returncode)}", None, self.phase
        message = str(self.error.get("message", "")).splitlines()
        first = message[0] if message else ""
        blames = self.error.get("blames")
        cause = f"failed: {self.error.get('exception')}: {first}"
        phase = str(self.error.get("phase", self.phase))
        return cause, blames if isinstance(blames, str) else None, phase


@dataclass(kw_only=True, slots=True, frozen=True)
class Outcome:
    """How a run ended."""

    status: str
    """`completed`, `stopped` or `failed`."""
    exit_code: int
    reason: str
    """One line."""
    failure: Failure | None = None
    later: tuple[str, ...] = ()
    """What followed from the first cause, or went wrong while stopping."""
    exits: tuple[ChildExit, ...] = ()
    """Every child that was seen to end, in that order."""
    trained: bool = True
    """False when the run ended before its first environment step."""
    keep_names: bool = False
    """The third interrupt: leave the shared names to `unilab-launch gc`."""


def completed() -> Outcome:
    """Training reached its end."""
    return Outcome(status="completed", exit_code=int(ExitCode.OK), reason="training completed")


def stopped_by(signum: int, *, saving: bool) -> Outcome:
    """A person or the system asked for the end."""
    name = signal.Signals(signum).name
    how = "" if saving else " without saving"
    return Outcome(
        status="stopped", exit_code=exit_code_of_signal(signum), reason=f"stopped by {name}{how}"
    )


def failed(failure: Failure) -> Outcome:
    """The first failure decides."""
    return Outcome(
        status="failed", exit_code=failure.exit_code, reason=failure.line(), failure=failure
    )
