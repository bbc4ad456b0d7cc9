"""`policy.pt`: the actor alone, with all that is needed to run it and nothing of the training.

Written by the learner beside its checkpoints, read by the evaluation. Loading executes no code from
the file and needs no configuration. Content:

    format      "unilab-policy"
    version     1
    kind        "squashed_gaussian" (SAC), "unit_norm" (FlashSAC) or "gaussian" (PPO, APPO); absent
                means the first
    actor       ActorSpec, UnitActorSpec or GaussianSpec as a dict
    weights     state dict of the actor (float32, CPU)
    normalizer  state dict of the observation normaliser, or None (the others have their own)
    contract    task, sim, algo, obs_width, action_width, obs_terms, env (config), iteration, ...
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from unilab_core.nets.gaussian import GaussianPolicy, GaussianSpec
from unilab_core.nets.normalizer import ObsNormalizer
from unilab_core.nets.squashed_gaussian import ActorSpec, SquashedGaussianActor
from unilab_core.nets.torch_file import DamagedFileError, read_torch_file, write_torch_file
from unilab_core.nets.unit_networks import UnitActor, UnitActorSpec

FORMAT = "unilab-policy"
VERSION = 1
CONTRACT_KEYS = frozenset(
    {"task", "sim", "algo", "obs_width", "action_width", "obs_terms", "env", "iteration"}
)
_CONTENT_ERRORS = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What building networks from values of the wrong form raises."""

Actor = SquashedGaussianActor | UnitActor | GaussianPolicy
KINDS: dict[str, type] = {
    "squashed_gaussian": SquashedGaussianActor,
    "unit_norm": UnitActor,
    "gaussian": GaussianPolicy,
}


class PolicyFileError(ValueError):
    """The file is damaged or is not a policy of this project."""


class ActingModule(nn.Module):
    """obs[E, O] -> actions[E, A] as one module, the observation normaliser included."""

    def __init__(self, actor: Actor, normalizer: ObsNormalizer | None) -> None:
        super().__init__()
        self.actor = actor
        self.normalizer = normalizer

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """The most likely action of each row."""
        rows = obs if self.normalizer is None else self.normalizer(obs)
        return self.actor.act(rows)


class Policy:
    """A deterministic policy on the CPU. Observations [E, O] in, actions [E, A] out."""

    def __init__(
        self,
        actor: Actor,
        normalizer: ObsNormalizer | None,
        contract: dict[str, Any],
    ) -> None:
        self.contract = contract
        self.module = ActingModule(actor, normalizer).eval()
        """What `act` computes, for exporters."""

    @torch.inference_mode()
    def act(self, obs: np.ndarray) -> np.ndarray:
        """The most likely action for each row of obs[E, O] (float32) -> [E, A] float32."""
        if obs.ndim != 2 or obs.shape[1] != self.contract["obs_width"]:
            raise ValueError(f"obs: got {obs.shape}, expected (E, {self.contract['obs_width']})")
        rows = torch.from_numpy(np.ascontiguousarray(obs, dtype=np.float32))
        return self.module(rows).numpy()


def save_policy(
    path: Path,
    actor: Actor,
    normalizer: ObsNormalizer | None,
    contract: Mapping[str, Any],
) -> None:
    """Write the file so that a reader sees either the old one or the complete new one."""
    missing = CONTRACT_KEYS - set(contract)
    if missing:
        raise ValueError(f"policy contract: missing {sorted(missing)}")
    content = {
        "format": FORMAT,
        "version": VERSION,
        "kind": next(kind for kind, cls in KINDS.items() if isinstance(actor, cls)),
        "actor": actor.spec.to_dict(),
        "weights": _on_cpu(actor.state_dict()),
        "normalizer": None if normalizer is None else _on_cpu(normalizer.state_dict()),
        "contract": dict(contract),
    }
    for name, tensor in {**content["weights"], **(content["normalizer"] or {})}.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"policy {path}: {name} holds a non-finite value; nothing was written")
    write_torch_file(path, content)


def load_policy(path: Path) -> Policy:
    """Read a policy; PolicyFileError names the file and what is wrong with it."""
    try:
        content = read_torch_file(path)
    except DamagedFileError as error:
        raise PolicyFileError(str(error)) from error
    if content.get("format") != FORMAT:
        raise PolicyFileError(f"{path}: not a {FORMAT} file")
    if content.get("version") != VERSION:
        raise PolicyFileError(f"{path}: version {content.get('version')!r}, expected {VERSION}")
    try:
        return _policy_of(content)
    except PolicyFileError as error:
        raise PolicyFileError(f"{path}: {error}") from None
    except _CONTENT_ERRORS as error:  # the checksum proves who damaged it, not who wrote it
        lines = str(error).splitlines() or [""]
        raise PolicyFileError(f"{path}: {type(error).__name__}: {lines[0]}") from error


def _policy_of(content: Mapping[str, Any]) -> Policy:
    missing = CONTRACT_KEYS - set(content["contract"])
    if missing:
        raise PolicyFileError(f"the contract lacks {sorted(missing)}")
    actor = build_actor(content)
    for name in ("obs_width", "action_width"):
        told, built = content["contract"][name], getattr(actor.spec, name)
        if type(told) is not int or told != built:
            raise PolicyFileError(f"the contract's {name} is {told!r:.40}, the actor's {built}")
    actor.load_state_dict(content["weights"])
    normalizer = None
    if content["normalizer"] is not None:
        normalizer = ObsNormalizer(actor.spec.obs_width)
        normalizer.load_state_dict(content["normalizer"])
    return Policy(actor, normalizer, content["contract"])


def build_actor(content: Mapping[str, Any]) -> Actor:
    """An actor without its weights, as the content of a policy file describes it.

    Built without memory first: a description that its own weights do not fit could ask for any.
    """
    with torch.device("meta"):
        described = {name: t.shape for name, t in _described_actor(content).state_dict().items()}
    found = {name: tensor.shape for name, tensor in content["weights"].items()}
    if described != found:
        raise PolicyFileError("the weights do not have the shapes that the description needs")
    return _described_actor(content)


def _described_actor(content: Mapping[str, Any]) -> Actor:
    kind = content.get("kind", "squashed_gaussian")
    if kind == "squashed_gaussian":
        return SquashedGaussianActor(ActorSpec.from_dict(content["actor"]))
    if kind == "unit_norm":
        return UnitActor(UnitActorSpec.from_dict(content["actor"]))
    if kind == "gaussian":
        return GaussianPolicy(GaussianSpec.from_dict(content["actor"]))
    raise PolicyFileError(f"unknown kind of policy {kind!r}")


def _on_cpu(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
