"""Failures that a process reports by its exit code."""

from typing import ClassVar

from unilab_core.config.errors import ConfigError
from unilab_core.run.exit_codes import UNEXPECTED, ExitCode
from unilab_ipc.errors import (
    Closed,
    JobMissing,
    NameInUse,
    NoSpace,
    PeerDead,
    SegmentMismatch,
    SegmentMissing,
    SegmentNotReady,
)


class RunError(RuntimeError):
    """Base of the failures below; the message is one line."""

    exit_code: ClassVar[ExitCode] = ExitCode.PROCESS_DIED


class EnvError(RunError):
    """The environment raised; `__cause__` is its exception."""

    exit_code = ExitCode.ENV_EXCEPTION


class NonFiniteError(RunError):
    """A value that is not finite reached one of the guards."""

    exit_code = ExitCode.NON_FINITE

    def __init__(
        self, source: str, env: int | None = None, step: int | None = None, kind: str = "NaN"
    ) -> None:
        """Name the owner: `NonFiniteError("reward", 17, 1204)` reads `reward NaN env 17 step 1204`.

        Args:
            source: what was not finite (obs, reward, action, loss, weights, ...).
            env: index of the environment, where there is one.
            step: vector step or update, where there is one.
            kind: NaN, inf, or another word for what was found.
        """
        where = "" if env is None else f" env {env}"
        when = "" if step is None else f" step {step}"
        super().__init__(f"{source} {kind}{where}{when}")
        self.source = source
        self.env = env
        self.step = step
        self.kind = kind
        self._detail = ""

    def add_detail(self, text: str) -> None:
        """Say more after the owner: where the last states are, why dropping did not help."""
        self._detail = f"{self._detail}; {text}"

    def __str__(self) -> str:
        """The owner, then the details."""
        return super().__str__() + self._detail


class CheckpointError(RunError):
    """No checkpoint could be loaded: foreign, damaged, or of another version."""

    exit_code = ExitCode.INCOMPATIBLE


class FinalSaveError(RunError):
    """The checkpoint at the end of training could not be written."""

    exit_code = ExitCode.FINAL_SAVE_FAILED


class RunDirError(ValueError):
    """The run directory cannot be made or read; names the path."""


def exit_code_of(error: BaseException) -> int:
    """Exit code of a process that ends with this exception."""
    if isinstance(error, RunError):
        return error.exit_code
    if isinstance(error, Closed):  # a requested end, not a failure
        return ExitCode.OK
    if isinstance(error, SegmentMismatch | SegmentNotReady | SegmentMissing):
        return ExitCode.INCOMPATIBLE
    by_class: dict[type[BaseException], ExitCode] = {
        PeerDead: ExitCode.PROCESS_DIED,
        NoSpace: ExitCode.NO_SPACE,
        NameInUse: ExitCode.NAME_IN_USE,
        JobMissing: ExitCode.NOTHING,
        RunDirError: ExitCode.USAGE,
        ConfigError: ExitCode.USAGE,
    }
    return by_class.get(type(error), UNEXPECTED)
