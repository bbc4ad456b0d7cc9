"""What the learner leaves on disk: checkpoints, `policy.pt`, and policies on a clock.

    checkpoints/...               every `save_interval` iterations or `checkpoint_interval_s`, and
    policy.pt                     together with it, at the end
    policies/policy_00061.25.pt   every `policy_interval_s`; seconds since the launcher started

A save that fails in the middle of training (a full disk) is counted, reported and tried again at
the next interval; only the last one is allowed to fail the job.
"""

import importlib.metadata
import logging
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unilab_core.config.config import Config
from unilab_core.contracts import EnvSpec
from unilab_core.nets.policy_file import save_policy
from unilab_core.run.failures import CheckpointError, FinalSaveError
from unilab_core.run.run_dir import RunPaths
from unilab_learner.checkpoint import CheckpointStore, require_finite, require_same
from unilab_learner.learner import Learner

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class Progress:
    """Counters that continue across a resume."""

    iteration: int = 0
    """Finished training iterations; also the policy version."""
    env_steps: int = 0
    """Transitions stored so far, all environments together."""
    mean_return: float | None = None
    """Of the last 100 episodes; None before the first ended."""


class Saver:
    """Writes and reads the files of one run."""

    def __init__(
        self,
        *,
        config: Config,
        spec: EnvSpec,
        paths: RunPaths,
        learner: Learner,
        seconds_since_start: Callable[[], float],
    ) -> None:
        self.num_failed_saves = 0
        self.last_checkpoint: Path | None = None
        self.skipped: list[str] = []
        """Checkpoints that a resume passed over, with the reason."""
        self._config = config
        self._spec = spec
        self._paths = paths
        self._learner = learner
        self._seconds = seconds_since_start
        self._store = CheckpointStore(paths.checkpoints)
        self._saved_iteration = -1
        self._next_checkpoint_s = self._after(config.training.checkpoint_interval_s)
        self._next_policy_s = self._after(config.training.policy_interval_s)

    def due(self, progress: Progress) -> bool:
        """Whether an interval has passed."""
        by_count = progress.iteration % self._config.algo.save_interval == 0
        return by_count or self._seconds() >= self._next_checkpoint_s

    def try_save(self, progress: Progress) -> str:
        """Save now; a failing disk is counted and tried again later. One line for the monitors."""
        try:
            path = self._save(progress)
        except OSError as error:
            self.num_failed_saves += 1
            text = f"checkpoint of iteration {progress.iteration} not written: {error}"
            log.warning("%s", text)
            return text
        return f"saved {path.name}"

    def save_final(self, progress: Progress) -> None:
        """Save at the end, unless exactly this iteration is already on disk.

        Raises:
            FinalSaveError: the disk refused; earlier checkpoints are still there.
        """
        if progress.iteration == self._saved_iteration:
            return
        try:
            self._save(progress)
        except OSError as error:
            raise FinalSaveError(
                f"final checkpoint of iteration {progress.iteration} not written: {error}"
            ) from error

    def export_policy_if_due(self, progress: Progress) -> None:
        """Write one policy of the clocked series; no refusal of the disk is worth failing for.

        Raises:
            NonFiniteError: a weight is NaN or infinite; nothing was written.
        """
        seconds = self._seconds()
        interval_s = self._config.training.policy_interval_s
        if interval_s is None or seconds < self._next_policy_s:
            return
        self._next_policy_s = seconds + interval_s
        try:
            self._paths.policies.mkdir(exist_ok=True)
            self._export(self._paths.policies / f"policy_{seconds:08.2f}.pt", progress)
        except OSError as error:
            self.num_failed_saves += 1
            log.warning("policy at %.2f s not written: %s", seconds, error)

    def resume(self, run_dir: Path, selector: int | str) -> Progress:
        """Load a checkpoint of `run_dir` into the learner.

        Raises:
            CheckpointError: none is there, it is damaged, or it belongs to something else.
        """
        store = CheckpointStore(RunPaths(run_dir).checkpoints)
        try:
            content = store.load(selector, self._require_own)
        finally:
            self.skipped = store.skipped
        try:
            self._learner.load_state_dict(content["learner"])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            detail = str(error).splitlines()[0]
            raise CheckpointError(f"checkpoint does not fit these networks: {detail}") from error
        counters = content["counters"]
        return Progress(iteration=counters["iteration"], env_steps=counters["env_steps"])

    def _require_own(self, content: Mapping[str, Any]) -> None:
        """A checkpoint of another task, or one without its parts, is of no use here."""
        identity, counters = content.get("identity"), content.get("counters")
        if not isinstance(identity, Mapping) or not isinstance(counters, Mapping):
            raise CheckpointError("checkpoint without identity or counters")
        for name, expected in self._identity().items():
            require_same(name, identity.get(name), expected)
        for name in ("iteration", "env_steps"):
            if type(counters.get(name)) is not int:
                raise CheckpointError(f"checkpoint counter {name}: got {counters.get(name)!r}")
        if not isinstance(content.get("learner"), Mapping):
            raise CheckpointError("checkpoint without the learner's state")

    def _save(self, progress: Progress) -> Path:
        self._next_checkpoint_s = self._after(self._config.training.checkpoint_interval_s)
        content = {
            "identity": self._identity(),
            "learner": self._learner.state_dict(),
            "counters": {"iteration": progress.iteration, "env_steps": progress.env_steps},
            "versions": _versions(),
        }
        path = self._store.save(
            content, iteration=progress.iteration, mean_return=progress.mean_return
        )
        self._export(self._paths.policy, progress)
        self._saved_iteration = progress.iteration
        self.last_checkpoint = path
        return path

    def _export(self, path: Path, progress: Progress) -> None:
        contract: Mapping[str, Any] = {
            **self._identity(),
            "obs_terms": [[name, width] for name, width in self._spec.obs_terms],
            "env": self._config.env.to_dict(),
            "iteration": progress.iteration,
            "env_steps": progress.env_steps,
            "train_seconds": self._seconds(),
        }
        actor, normalizer = self._learner.acting()
        require_finite({"actor": actor.state_dict()})
        if normalizer is not None:
            require_finite({"normalizer": normalizer.state_dict()})
        save_policy(path, actor, normalizer, contract)

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must share with the run that loads it."""
        training, spec = self._config.training, self._spec
        return {
            "algo": self._config.algo.algo,
            "task": training.task_name,
            "sim": training.sim_backend,
            "obs_width": spec.obs_width,
            "critic_obs_width": spec.critic_obs_width,
            "action_width": spec.action_width,
        }

    def _after(self, interval_s: float | None) -> float:
        return float("inf") if interval_s is None else self._seconds() + interval_s


def _versions() -> dict[str, str]:
    return {
        "unilab": importlib.metadata.version("unilab-rl"),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
