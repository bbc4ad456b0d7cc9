"""What SAC and FlashSAC share between loop and algorithm: replay, mirror, rhythm, figures.

One iteration, in the order of the loop's phases:

    gather()    draw `updates_per_step` batches from the replay in one pass (Replay Batch Wait)
    take()      prepare the rows and cut them into batches                  (Replay Sample)
    learn()     the updates, then one look at the figures                   (Learning)

Legend: U updates per iteration, B batch rows, E environments, O/C observations, A actions.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from unilab_core.config.algo import OffPolicyConfig
from unilab_core.contracts import EnvSpec
from unilab_learner.replay.buffer import ReplayBuffer, ReplayRows, StoredTick
from unilab_learner.replay.mirror import Mirror, mirror_of

SAMPLER_SEED_OFFSET = 7919
"""Keeps the replay's random stream apart from the policy's, which starts at the bare seed."""


class BoundedActor(Protocol):
    """What random actions need of an actor."""

    scale: Tensor
    """[A] half the width of the action space"""
    bias: Tensor
    """[A] its middle"""


class ReplayState(Protocol):
    """What is read here of everything that learning changes."""

    @property
    def actor(self) -> BoundedActor:
        """The policy."""
        ...

    @property
    def generator(self) -> torch.Generator:
        """The policy's random stream."""
        ...

    @property
    def skipped_steps(self) -> Tensor:
        """[] optimiser steps refused so far because a loss or gradient was not finite."""
        ...


Cfg = TypeVar("Cfg", bound=OffPolicyConfig)
State = TypeVar("State", bound=ReplayState)
Batch = TypeVar("Batch")


class ReplayLearner(Generic[Cfg, State, Batch]):
    """Everything of one rank that learning reads or changes, on one device.

    A subclass builds `state` after this constructor, which starts torch's random stream.
    """

    state: State

    def __init__(self, cfg: Cfg, spec: EnvSpec, device: torch.device, *, use_amp: bool) -> None:
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.device = device
        self._mirror: Mirror | None = mirror_of(spec, device) if cfg.symmetry_augmentation else None
        self.replay = ReplayBuffer(
            num_ticks=cfg.replay_buffer_n,
            num_envs=spec.num_envs,
            obs_width=spec.obs_width,
            critic_obs_width=spec.critic_obs_width,
            action_width=spec.action_width,
            gamma=cfg.gamma,
            n_step=cfg.n_step,
            age_decay=cfg.age_decay,
            device=device,
        )
        self._ticks_before = 0  # stored by the runs that this one continues
        self._figures: dict[str, Tensor] = {}
        self._sampler = torch.Generator(device=device).manual_seed(cfg.seed + SAMPLER_SEED_OFFSET)
        self._use_amp = use_amp
        self._rows: ReplayRows | None = None

    @property
    def rows_per_iteration(self) -> int:
        """Replay rows that `learn` trains on at the newest tick."""
        return 0 if self._is_refilling else self._rows_per_draw

    @property
    def _rows_per_draw(self) -> int:
        return self.cfg.batch_size * self.cfg.updates_per_step

    @property
    def rows_per_batch(self) -> int:
        """Rows of one update."""
        return self.cfg.batch_size

    def act_randomly(self, obs: Tensor, ended: Tensor) -> Tensor:
        """Actions[E, A] uniform over the action space: the warm-up."""
        del ended
        return random_actions(self.state.actor, obs.shape[0], self.state.generator)

    @property
    def _ticks(self) -> int:
        """Vector steps stored so far, by the runs before too."""
        return self._ticks_before + self.replay.ticks_written

    @property
    def _is_refilling(self) -> bool:
        """True in the steps after the restart of the replay in which nothing is learned."""
        restart = self.cfg.replay_restart_tick
        return 0 < restart <= self._ticks < restart + self.cfg.replay_restart_fill

    def observe(self, tick: StoredTick) -> None:
        """Take note of one stored tick."""
        del tick
        if self._ticks == self.cfg.replay_restart_tick:
            self.replay.forget()

    def gather(self) -> None:
        """Draw the rows of the next iteration."""
        self._rows = self._draw(self._rows_per_draw, self._sampler)

    def learn(self, batches: list[Batch]) -> tuple[dict[str, float], int]:
        """Run the updates, or none while the replay fills again after its restart.

        Returns:
            The figures of the last update by canonical tag, and how many optimiser steps have been
            refused as non-finite since the start. Reading them is the only wait for the device.
        """
        # Without the cache: it keeps the bf16 copies of the weights for the length of the context,
        # so every update after the first would run on the weights of before.
        with torch.autocast(
            self.device.type, torch.bfloat16, enabled=self._use_amp, cache_enabled=False
        ):
            for batch in () if self._is_refilling else batches:
                self._figures = self._update(batch)
        metrics = self._figures | self._more_metrics()
        *values, skipped = torch.stack([*metrics.values(), self.state.skipped_steps]).tolist()
        return dict(zip(metrics, values, strict=True)), int(skipped)

    def _update(self, batch: Batch) -> dict[str, Tensor]:
        """One update of the algorithm; its figures by canonical tag."""
        raise NotImplementedError

    def _more_metrics(self) -> dict[str, Tensor]:
        """Figures of the learner itself, by canonical tag."""
        return {}

    def _draw(self, num_rows: int, sampler: torch.Generator) -> ReplayRows:
        rows = self.replay.sample(num_rows, sampler)
        return rows if self._mirror is None else self._mirror.every_second(rows)

    def _gathered(self) -> ReplayRows:
        rows = self._rows
        assert rows is not None, "take before gather"
        self._rows = None
        return rows

    def _cut(self, parts: Mapping[str, Tensor], batch: Callable[..., Batch]) -> list[Batch]:
        """U batches of B rows, from parts[U B, ...] by the names of the batch's fields."""
        pieces = {name: part.split(self.cfg.batch_size) for name, part in parts.items()}
        return [
            batch(**{name: piece[index] for name, piece in pieces.items()})
            for index in range(self.cfg.updates_per_step)
        ]

    def _shared_state(self) -> dict[str, Any]:
        """This class's part of `state_dict`; the replay rows are left out."""
        return {
            "ticks": self._ticks,
            "sampler": self._sampler.get_state(),
            "torch_rng": torch.get_rng_state(),
        }

    def _load_shared_state(self, values: Mapping[str, Any]) -> None:
        """Continue from `_shared_state`; the replay starts empty."""
        self._ticks_before = int(values["ticks"])
        self._sampler.set_state(values["sampler"])
        torch.set_rng_state(values["torch_rng"])


def action_bound(bound: tuple[float, ...] | None, default: float, width: int) -> tuple[float, ...]:
    """The bound of the action space, or the unit box where the environment has none."""
    return (default,) * width if bound is None else bound


def random_actions(actor: BoundedActor, num_rows: int, generator: torch.Generator) -> Tensor:
    """Actions[B, A] uniform over the action space."""
    shape, device = (num_rows, actor.scale.shape[0]), actor.scale.device
    unit = torch.rand(shape, generator=generator, device=device)
    return (2.0 * unit - 1.0) * actor.scale + actor.bias
