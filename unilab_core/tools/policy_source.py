"""The policy that `unilab-eval` was asked for: a run's newest, one of its checkpoints, a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unilab_core.nets.normalizer import ObsNormalizer
from unilab_core.nets.policy_file import Actor, Policy, PolicyFileError, build_actor, load_policy
from unilab_core.nets.rsl_rl_weights import gaussian_weights
from unilab_core.nets.torch_file import DamagedFileError, read_torch_file
from unilab_core.run.failures import CheckpointError, RunDirError
from unilab_core.run.run_dir import RunPaths


def find_policy(source: Path, checkpoint: str | None) -> tuple[Policy, Path]:
    """Load a policy and say which file it came from.

    Args:
        source: a run directory, or a policy file.
        checkpoint: of a run: an iteration, `best`, or a file name; None: the newest policy.

    Raises:
        RunDirError: there is nothing of that name.
        CheckpointError: what is there is damaged or foreign.
    """
    if source.is_file():
        if checkpoint is not None:
            raise RunDirError(f"--checkpoint belongs to a run directory, got the file {source}")
        return _load(source), source
    if not source.is_dir():
        raise RunDirError(f"{source}: no such run directory or policy file")
    newest = RunPaths(source).policy
    if not newest.is_file():
        raise RunDirError(f"{source}: holds no {newest.name}; nothing was saved yet")
    if checkpoint is None:
        return _load(newest), newest
    path = _checkpoint_path(source, checkpoint)
    if path.parent == RunPaths(source).policies:
        return _load(path), path
    return _load_checkpoint(path, newest), path


def _checkpoint_path(run_dir: Path, name: str) -> Path:
    """An iteration, `best`, or the name of a file in checkpoints/ or policies/."""
    paths = RunPaths(run_dir)
    file_name = f"checkpoint_{int(name):08d}.pt" if name.isdecimal() else name
    file_name = file_name if file_name.endswith(".pt") else f"{file_name}.pt"
    if Path(file_name).name != file_name:
        raise RunDirError(f"--checkpoint {name!r}: expected an iteration, `best` or a file name")
    for folder in (paths.checkpoints, paths.policies):
        if (folder / file_name).is_file():
            return folder / file_name
    found = [
        path.name for folder in (paths.checkpoints, paths.policies) for path in folder.glob("*.pt")
    ]
    known = ", ".join(sorted(found)) or "none"
    raise RunDirError(f"{run_dir}: no checkpoint {name!r}; there are: {known}")


def _load(path: Path) -> Policy:
    try:
        return load_policy(path)
    except PolicyFileError as error:
        raise CheckpointError(str(error)) from None


def _load_checkpoint(path: Path, policy_path: Path) -> Policy:
    """Weights of a checkpoint in the networks that the run's policy file describes."""
    try:
        described = read_torch_file(policy_path)
        content = read_torch_file(path)
    except DamagedFileError as error:
        raise CheckpointError(str(error)) from None
    try:
        actor, normalizer = _restore(described, content["learner"])
        contract = {**described["contract"], "iteration": content["iteration"]}
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        detail = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"{path}: not a checkpoint of this run: {detail}") from None
    return Policy(actor, normalizer, contract)


def _restore(
    described: Mapping[str, Any], learner: Mapping[str, Any]
) -> tuple[Actor, ObsNormalizer | None]:
    """The acting half of a checkpoint; each algorithm keeps it under its own name."""
    actor = build_actor(described)
    if "appo" in learner:
        actor.load_state_dict(learner["appo"]["policy"])
        return actor, None
    if "ppo" in learner:
        actor.load_state_dict(gaussian_weights(learner["ppo"]["actor_state_dict"]))
        return actor, None
    if "flash_sac" in learner:
        actor.load_state_dict(learner["policy"])
        return actor, None
    actor.load_state_dict(learner["sac"]["actor"])
    if learner["normalizers"][0] is None:
        return actor, None
    normalizer = ObsNormalizer(actor.spec.obs_width)
    normalizer.load_state_dict(learner["normalizers"][0])
    return actor, normalizer
