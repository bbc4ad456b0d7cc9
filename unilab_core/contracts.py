"""The environment contract: what every environment and every physics backend promises.

Shapes use these symbols: `E` environments, `O` policy observation width, `C` critic observation
width, `A` action width, `Q` positions, `V` velocities, `U` actuators, `S` sensor values.

One call of `Env.step(actions)` is one control step of all `E` environments:

    obs_t --policy--> actions --step--> reward, terminated, truncated, obs_{t+1}

* `terminated`: the episode ended for a reason of its own (a fall): no future to bootstrap from.
* `truncated`: it ran out of time: bootstrap from `final_obs`. Never together with `terminated`.
* Auto-reset: an environment that ended starts again inside the same call. `obs` and `critic_obs`
  are then the first observations of the new episode, `final_obs` and `final_critic_obs` the true
  last ones of the old. Their rows are valid only where `terminated | truncated`.
* Every array belongs to the environment and is overwritten by the next `step` or `reset`: copy
  what you keep.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
PhysicsArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IdArray = NDArray[np.intp]

TIMING_KEYS = (
    "action_validate",
    "apply_action",
    "action_backend",
    "backend",
    "update_state",
    "reset_done",
)
"""Consecutive parts of one step, in order; the keys of `Env.timings_ns`."""


@dataclass(kw_only=True, slots=True, frozen=True)
class MirrorMap:
    """Left/right mirror image of a vector: entry i is `sign[i]` times entry `index[i]`."""

    index: tuple[int, ...]
    sign: tuple[float, ...]


@dataclass(kw_only=True, slots=True, frozen=True)
class Symmetry:
    """Mirror images under which the task is the same."""

    obs: MirrorMap
    critic_obs: MirrorMap
    action: MirrorMap


@dataclass(kw_only=True, slots=True, frozen=True)
class EnvSpec:
    """Everything that others need to know about an environment without building it."""

    task: str
    sim: str
    num_envs: int
    obs_width: int
    critic_obs_width: int
    action_width: int
    action_low: tuple[float, ...] | None
    """Lower bound per action, or None where the environment does not clip."""
    action_high: tuple[float, ...] | None
    obs_terms: tuple[tuple[str, int], ...]
    """Policy observation terms in order, each with its width."""
    critic_obs_terms: tuple[tuple[str, int], ...]
    reward_terms: tuple[str, ...]
    termination_terms: tuple[str, ...]
    log_keys: tuple[str, ...]
    """Keys of `StepResult.log`, in order."""
    ctrl_dt_s: float
    max_episode_steps: int
    backend_device: str | None
    """Device whose queue the physics waits for; None where it runs on the calling threads."""
    symmetry: Symmetry | None = None
    """None where the task has no mirror image, or none is known."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` is the inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "EnvSpec":
        """Rebuild from `to_json`, also after a round trip through JSON text."""
        values = dict(data)
        for name in ("obs_terms", "critic_obs_terms"):
            values[name] = tuple((str(term), int(width)) for term, width in values[name])
        for name in ("action_low", "action_high", "reward_terms", "termination_terms", "log_keys"):
            if values[name] is not None:
                values[name] = tuple(values[name])
        symmetry = values.get("symmetry")
        if symmetry is not None:
            values["symmetry"] = Symmetry(
                **{
                    name: MirrorMap(index=tuple(part["index"]), sign=tuple(part["sign"]))
                    for name, part in symmetry.items()
                }
            )
        return cls(**values)


@dataclass(slots=True)
class StepResult:
    """What `reset` and `step` return; one object, reused."""

    obs: FloatArray  # [E, O]
    critic_obs: FloatArray  # [E, C]
    reward: FloatArray  # [E]
    terminated: BoolArray  # [E]
    truncated: BoolArray  # [E]
    final_obs: FloatArray  # [E, O]
    final_critic_obs: FloatArray  # [E, C]
    log: dict[str, float]
    """`reward/<term>`: mean over envs of raw value x weight, before the factor dt;
    `Episode_Termination/<term>`: how many of the environments reset in this step it ended."""
    nonfinite: dict[str, int] = field(default_factory=dict[str, int])
    """`envs`: environments whose physics became non-finite or ran away in this step (they count
    as terminated, with reward 0); `total`: the same since the environment was built."""
    unstable: BoolArray | None = None
    """[E] which environments these were in this step; None where there were none."""
    broken: dict[str, PhysicsArray] = field(default_factory=dict[str, PhysicsArray])
    """Physics state of the unstable ones before their reset, by the names of `Env.physics`,
    [E, width]; other rows mean nothing."""
    dropped: BoolArray | None = None
    """[E] placeholders in the place of data beyond use, set by the collector's guard: not to be
    learned from. None where there are none."""


class Env(Protocol):
    """A vector of environments of one task on one backend."""

    spec: EnvSpec
    timings_ns: dict[str, int]
    """Duration of each part of the last step, by `TIMING_KEYS`."""

    def reset(self) -> StepResult:
        """Start all episodes; only `obs` and `critic_obs` of the result mean anything."""
        ...

    def step(self, actions: FloatArray) -> StepResult:
        """Advance all environments by one control step; `actions` is [E, A]."""
        ...

    def restart(self, ids: IdArray) -> None:
        """Begin new episodes for these environments, between two steps.

        Their rows of `obs` and `critic_obs` in the last result are the first observations.
        """
        ...

    def physics(self) -> dict[str, PhysicsArray]:
        """Live state of the physics, [E, width] each; empty where the environment shows none."""
        ...

    def continue_from(self, num_steps: int) -> None:
        """Count control steps from `num_steps`: a resumed run's curricula go on where they were."""
        ...

    def close(self) -> None:
        """Free the physics; the environment is unusable afterwards."""
        ...


class Backend(Protocol):
    """Physics of `E` copies of one robot; host arrays whatever the device.

    `qpos`, `qvel` and `ctrl` may be written between steps, `sensordata` only read. After `step`,
    positions and velocities are current while sensors describe the start of the last substep
    (as after mj_step); after `forward_rows` they are current too. `failed` marks environments
    that the engine gave up on in the last step, None when there are none.
    """

    num_envs: int
    device: str | None
    qpos: PhysicsArray  # [E, Q]
    qvel: PhysicsArray  # [E, V]
    ctrl: PhysicsArray  # [E, U]
    sensordata: PhysicsArray  # [E, S]
    failed: BoolArray | None  # [E]

    def step(self, num_substeps: int) -> None:
        """Advance every environment."""
        ...

    def reset_rows(self, ids: IdArray) -> None:
        """Put these environments into the home pose, at rest."""
        ...

    def forward_rows(self, ids: IdArray) -> None:
        """Bring sensors up to date with edited positions and velocities."""
        ...

    def model_field(self, name: str) -> NDArray[Any]:
        """Per-environment values of a model field, [E, ...], writable."""
        ...

    def commit_model(self) -> None:
        """Recompute what the engine derives from edited masses and frames."""
        ...

    def close(self) -> None:
        """Stop threads and free memory."""
        ...
