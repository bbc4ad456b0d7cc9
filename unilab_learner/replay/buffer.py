"""Replay buffer: a time-major ring of whole vector ticks in preallocated device memory.

Row (t, e) is the transition of environment e at tick t. All columns of a row lie side by side, so
that gathering a batch touches one stretch of memory per sample:

    critic_obs | action | obs | reward | terminated | truncated | next_critic_obs | next_obs

Ticks are written in order and the oldest tick is overwritten; because time is the outer axis, the
n-step sum of (t, e) reads (t+1, e), (t+2, e), ... and never crosses the write position: starts are
drawn only from ticks whose n-1 successors are stored. Dropped rows (placeholders of the NaN guard)
are drawn by nobody, and an n-step sum that reaches one bootstraps before it. Owned by the learner.

Legend: N ticks, E environments, B batch rows, W row width, O/C/A as above.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

AGE_WEIGHT_FLOOR = 0.1
"""No row is drawn less often than this, relative to the most wanted ones."""


@dataclass(kw_only=True, slots=True)
class ReplayRows:
    """A gathered batch in the units of the environment (not normalised)."""

    critic_obs: Tensor
    """[B, C]"""
    action: Tensor
    """[B, A]"""
    obs: Tensor
    """[B, O]"""
    reward: Tensor
    """[B] sum of gamma^k r over the steps taken"""
    discount: Tensor
    """[B] gamma^steps, 0 where the last step terminated"""
    next_critic_obs: Tensor
    """[B, C]"""
    next_obs: Tensor
    """[B, O]"""


@dataclass(kw_only=True, slots=True, frozen=True)
class StoredTick:
    """What was just written, on the device of the buffer; not to be kept."""

    obs: Tensor
    """[E, O]"""
    critic_obs: Tensor
    """[E, C]"""
    reward: Tensor
    """[E]"""
    done: Tensor
    """[E] 1.0 where the episode ended, for whatever reason"""


class ReplayBuffer:
    """Ring of `num_ticks` vector ticks of `num_envs` rows."""

    def __init__(
        self,
        *,
        num_ticks: int,
        num_envs: int,
        obs_width: int,
        critic_obs_width: int,
        action_width: int,
        gamma: float,
        n_step: int = 1,
        age_decay: float = 0.0,
        device: torch.device | None = None,
    ) -> None:
        if num_ticks < n_step:
            raise ValueError(f"replay_buffer_n: got {num_ticks}, expected at least n_step={n_step}")
        self.num_ticks = num_ticks
        self.num_envs = num_envs
        self.device = device if device is not None else torch.device("cpu")
        self._gamma = gamma
        self._n_step = n_step
        self._age_decay = age_decay
        widths = (critic_obs_width, action_width, obs_width, 1, 1, 1, critic_obs_width, obs_width)
        edges = np.cumsum((0, *widths)).tolist()
        self._columns = [slice(a, b) for a, b in itertools.pairwise(edges)]
        self._rows = torch.empty((num_ticks, num_envs, edges[-1]), device=self.device)
        on_cpu = self.device.type == "cpu"
        # Elsewhere one packed host copy is sent per tick instead of eight small ones.
        self._staging = (
            None
            if on_cpu
            else torch.empty((num_envs, edges[-1]), pin_memory=self.device.type == "cuda")
        )
        self.ticks_written = 0
        self.last_draw: tuple[Tensor, Tensor] | None = None
        """Starts of the newest sample: (tick[B], env[B]), on the device of the buffer."""
        self._first_kept_tick = 0
        self._dropped: Tensor | None = None
        """[N, E] rows that nobody may learn from; allocated when the first one arrives."""

    @property
    def size(self) -> int:
        """Stored rows that can be drawn."""
        return self._stored_ticks * self.num_envs

    @property
    def _stored_ticks(self) -> int:
        return min(self.ticks_written - self._first_kept_tick, self.num_ticks)

    def forget(self) -> None:
        """Draw no row older than the newest n ticks any more: they were made by other rules."""
        self._first_kept_tick = max(self.ticks_written - self._n_step, 0)

    @property
    def is_ready(self) -> bool:
        """True when at least one n-step start exists."""
        return self.ticks_written >= self._n_step

    def append(
        self,
        *,
        obs: np.ndarray,
        critic_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        next_obs: np.ndarray,
        next_critic_obs: np.ndarray,
        dropped: np.ndarray | None = None,
    ) -> StoredTick:
        """Store one tick; arrays [E, width] or [E], copied before returning."""
        self._mark_dropped(dropped)
        cell = self._rows[self.ticks_written % self.num_ticks]
        target = cell if self._staging is None else self._staging
        values = (critic_obs, action, obs, reward, terminated, truncated, next_critic_obs, next_obs)
        for columns, value in zip(self._columns, values, strict=True):
            source = torch.from_numpy(value)
            target[:, columns].copy_(source if source.dim() == 2 else source.unsqueeze(-1))
        if self._staging is not None:
            # Blocking on purpose: the staging row is reused by the next tick.
            cell.copy_(self._staging)
        self.ticks_written += 1
        critic_obs_part, _, obs_part, reward_part, ended, cut, *_ = (
            cell[:, columns] for columns in self._columns
        )
        return StoredTick(
            obs=obs_part,
            critic_obs=critic_obs_part,
            reward=reward_part.squeeze(-1),
            done=(ended + cut).squeeze(-1),
        )

    def sample(self, batch_size: int, generator: torch.Generator) -> ReplayRows:
        """Draw rows with replacement from the stored starts (ages weighted by `age_decay`)."""
        stored = self._stored_ticks
        num_starts = stored - self._n_step + 1
        first_tick = self.ticks_written - stored
        offset = self._draw_ticks(num_starts, batch_size, generator)
        env = torch.randint(
            self.num_envs, (batch_size,), generator=generator, device=generator.device
        )
        tick, env = first_tick + offset.to(self.device), env.to(self.device)
        if self._dropped is not None:
            env = self._without_dropped(tick, env)
        self.last_draw = (tick, env)
        return self.gather(*self.last_draw)

    def _mark_dropped(self, dropped: np.ndarray | None) -> None:
        """Remember the placeholders of the tick about to be written; forget those overwritten."""
        if self._dropped is None:
            if dropped is None or not dropped.any():
                return
            self._dropped = torch.zeros(
                (self.num_ticks, self.num_envs), dtype=torch.bool, device=self.device
            )
        place = self._dropped[self.ticks_written % self.num_ticks]
        if dropped is None:
            place.fill_(False)
        else:
            place.copy_(torch.from_numpy(dropped != 0))

    def _without_dropped(self, tick: Tensor, env: Tensor) -> Tensor:
        """env[B] with each draw of a placeholder moved on to the next environment of its tick.

        A tick of placeholders alone (everything was reset) keeps its draws: the guard's rows are
        finite, and such ticks are counted and few.
        """
        assert self._dropped is not None
        for _ in range(self.num_envs - 1):
            hit = self._dropped[tick % self.num_ticks, env]
            if not bool(hit.any()):
                break
            env = torch.where(hit, (env + 1) % self.num_envs, env)
        return env

    def gather(self, tick: Tensor, env: Tensor) -> ReplayRows:
        """Read the transitions that start at absolute tick[B] of env[B]."""
        flat = self._rows.view(-1, self._rows.shape[-1])
        rows = flat.index_select(0, tick % self.num_ticks * self.num_envs + env)
        critic_obs, action, obs, reward, terminated, truncated, next_critic_obs, next_obs = (
            rows[:, columns] for columns in self._columns
        )
        reward, terminated = reward.squeeze(-1), terminated.squeeze(-1)
        discount = self._gamma * (1.0 - terminated)
        if self._n_step > 1:
            done = terminated + truncated.squeeze(-1)
            reward, discount, last = self._walk(tick, env, reward, discount, done)
            tail = slice(self._columns[6].start, self._columns[7].stop)
            tails = flat[:, tail].index_select(0, last % self.num_ticks * self.num_envs + env)
            next_critic_obs, next_obs = tails.split(
                [next_critic_obs.shape[-1], next_obs.shape[-1]], dim=-1
            )
        return ReplayRows(
            critic_obs=critic_obs,
            action=action,
            obs=obs,
            reward=reward,
            discount=discount,
            next_critic_obs=next_critic_obs,
            next_obs=next_obs,
        )

    def _walk(
        self, tick: Tensor, env: Tensor, reward: Tensor, discount: Tensor, done: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Extend one-step returns to n steps, each cut at its first done.

        Returns:
            The discounted reward sum, the bootstrap factor and the tick of the last step, each [B].
        """
        flags = slice(self._columns[3].start, self._columns[5].stop)
        flat = self._rows.view(-1, self._rows.shape[-1])
        last = tick.clone()
        for k in range(1, self._n_step):
            going = done == 0.0
            if self._dropped is not None:
                going &= ~self._dropped[(tick + k) % self.num_ticks, env]
            step = flat[:, flags].index_select(0, (tick + k) % self.num_ticks * self.num_envs + env)
            reward = torch.where(going, reward + self._gamma**k * step[:, 0], reward)
            discount = torch.where(going, self._gamma ** (k + 1) * (1.0 - step[:, 1]), discount)
            last = torch.where(going, tick + k, last)
            # A walk that stopped in front of a placeholder must not go on behind it.
            done = torch.where(going, step[:, 1] + step[:, 2], torch.ones_like(done))
        return reward, discount, last

    def _draw_ticks(self, num_starts: int, batch_size: int, generator: torch.Generator) -> Tensor:
        """Offsets from the oldest start, uniform or by age (see `draw_ages`)."""
        if self._age_decay == 0.0:
            return torch.randint(
                num_starts, (batch_size,), generator=generator, device=generator.device
            )
        u = torch.rand(batch_size, generator=generator, device=generator.device)
        newness = 1.0 - draw_ages(u, self._age_decay)
        return (newness * num_starts).long().clamp(max=num_starts - 1)


def draw_ages(u: Tensor, decay: float) -> Tensor:
    """Ages in [0, 1] (0 the newest, 1 the oldest) from uniform u[B], by the inverse distribution.

        weight(age) = max(1 - decay age, FLOOR)       decay > 0; below 0 the ages are turned round

    The cumulative weight is a parabola up to the knee (1 - FLOOR) / decay and a line after it, so
    its inverse is closed form.
    """
    d = abs(decay)
    knee = min(1.0, (1.0 - AGE_WEIGHT_FLOOR) / d)
    mass_to_knee = knee - 0.5 * d * knee**2
    mass = u * (mass_to_knee + AGE_WEIGHT_FLOOR * (1.0 - knee))
    # Of the two solutions of age - d age^2 / 2 = mass the smaller, written without cancellation.
    root = (1.0 - 2.0 * d * mass).clamp(min=0.0).sqrt()
    before = 2.0 * mass / (1.0 + root)
    after = knee + (mass - mass_to_knee) / AGE_WEIGHT_FLOOR
    age = torch.where(mass <= mass_to_knee, before, after)
    return age if decay > 0.0 else 1.0 - age
