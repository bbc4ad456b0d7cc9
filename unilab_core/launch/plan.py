"""Which processes a run consists of. Pure: `--dry-run` prints what this returns."""

import shlex
import sys
from dataclasses import dataclass, field

from unilab_core.config.config import Config
from unilab_core.run.threads import ThreadPlan

ROLES = ("collector", "learner")
"""Start order: the collector builds its environment while the learner imports torch."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

HEAP_VARIABLES = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
"""glibc gives memory of a few hundred KiB back to the kernel at once and faults it in again: some
500 page faults, a tenth of the time, in each update on a CPU."""


@dataclass(kw_only=True, slots=True, frozen=True)
class ProcessSpec:
    """One child process."""

    role: str
    rank: int
    argv: tuple[str, ...]
    environ: dict[str, str] = field(default_factory=dict)
    """Variables set for this child in addition to the passed-on ones."""

    def command(self) -> str:
        """The command line as one would type it."""
        settings = [f"{name}={value}" for name, value in sorted(self.environ.items())]
        return shlex.join([*settings, *self.argv])


def plan(
    config: Config,
    job: str,
    threads: ThreadPlan,
    *,
    python: str = sys.executable,
    flags: tuple[str, ...] = (),
) -> tuple[ProcessSpec, ...]:
    """Processes of a run in start order; stopping goes the other way round."""
    per_role = {"collector": threads.collector, "learner": threads.learner}
    return tuple(
        ProcessSpec(
            role=role,
            rank=0,
            argv=(python, "-m", f"unilab_{role}", "--job", job, "--rank", "0", *flags),
            environ=_environ(config, role, per_role[role]),
        )
        for role in ROLES
    )


def _environ(config: Config, role: str, threads: int | None) -> dict[str, str]:
    environ = {"PYTHONUNBUFFERED": "1"}
    if threads is not None and config.training.torch_threads.set_env_vars:
        environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
        # Threads that spin while they wait would take the core from the other process.
        environ["OMP_WAIT_POLICY"] = "PASSIVE"
    if role == "learner" and config.training.torch_threads.set_env_vars:
        environ.update(HEAP_VARIABLES)
    return environ
