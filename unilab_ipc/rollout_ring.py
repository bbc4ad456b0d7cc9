"""Rollouts of APPO: one slot is T steps of E environments, filled in place, consumed in order.

Protocol, ownership and crash behaviour: `slot_ring`. The collector claims a slot before the first
step, writes step after step into it and commits after the last; a full ring makes it wait
(counted), so a rollout is never overwritten under the learner. Each slot carries the versions of
the behaviour policy and of the observation normaliser that acted in it, and the observation after
the last step.

Symbols: D slots, T steps, T1 = T + 1, E environments, O/C observation widths, A action width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from unilab_ipc.layout import Dims
from unilab_ipc.memory import Segment
from unilab_ipc.slot_ring import SlotConsumer, SlotProducer, no_bell, ring_counts

DEFAULT_SLOTS = 3


def rollout_dims(
    *,
    slots: int = DEFAULT_SLOTS,
    steps: int,
    num_envs: int,
    obs_width: int,
    critic_obs_width: int,
    action_width: int,
) -> dict[str, int]:
    """Geometry of a ring of `slots` rollouts of `steps` steps."""
    if slots < 1 or steps < 1 or num_envs < 1:
        raise ValueError(
            f"slots, steps and num_envs must be >= 1, got {slots}, {steps} and {num_envs}"
        )
    return {
        "D": slots,
        "T": steps,
        "T1": steps + 1,
        "E": num_envs,
        "O": obs_width,
        "C": critic_obs_width,
        "A": action_width,
    }


@dataclass(slots=True)
class RolloutSlot:
    """Arrays of one slot."""

    obs: NDArray[Any]
    """[T + 1, E, O]"""
    critic_obs: NDArray[Any]
    """[T + 1, E, C]"""
    actions: NDArray[Any]
    """[T, E, A]"""
    log_prob: NDArray[Any]
    """[T, E]"""
    mean: NDArray[Any]
    """[T, E, A]"""
    std: NDArray[Any]
    """[A]"""
    reward: NDArray[Any]
    """[T, E]"""
    terminated: NDArray[Any]
    """[T, E]"""
    truncated: NDArray[Any]
    """[T, E]"""
    dropped: NDArray[Any]
    """[T, E] 1: a placeholder in the place of data that was not finite"""
    final_critic_obs: NDArray[Any]
    """[T, E, C], valid where the episode ended"""
    version_words: tuple[NDArray[Any], NDArray[Any]]
    """Shared words behind `policy_version` and `normaliser_version`, one element each"""
    seq: int = -1

    @property
    def policy_version(self) -> int:
        """Version of the policy that acted in this rollout."""
        return int(self.version_words[0][0])

    @property
    def normaliser_version(self) -> int:
        """Version of the observation normaliser that scaled its input."""
        return int(self.version_words[1][0])

    def set_versions(self, policy_version: int, normaliser_version: int) -> None:
        """Store both versions (collector only, between claim and commit)."""
        self.version_words[0][0] = policy_version
        self.version_words[1][0] = normaliser_version

    def payload(self) -> tuple[NDArray[Any], ...]:
        """Every array of the slot."""
        return (
            self.obs,
            self.critic_obs,
            self.actions,
            self.log_prob,
            self.mean,
            self.std,
            self.reward,
            self.terminated,
            self.truncated,
            self.dropped,
            self.final_critic_obs,
            *self.version_words,
        )


class RolloutRing:
    """The ring of one rank; each side is obtained once."""

    __slots__ = ("_debug", "_segment", "_slots")

    def __init__(self, segment: Segment, dims: Dims | None = None, debug: bool = False) -> None:
        if dims is not None and dict(dims) != segment.dims:
            raise ValueError(f"rollout geometry must be {segment.dims}, got {dict(dims)}")
        view = segment.view
        self._segment = segment
        self._debug = debug
        self._slots = [
            RolloutSlot(
                obs=view["obs"][index],
                critic_obs=view["critic_obs"][index],
                actions=view["actions"][index],
                log_prob=view["log_prob"][index],
                mean=view["mean"][index],
                std=view["std"][index],
                reward=view["reward"][index],
                terminated=view["terminated"][index],
                truncated=view["truncated"][index],
                dropped=view["dropped"][index],
                final_critic_obs=view["final_critic_obs"][index],
                version_words=(
                    view["policy_version"][index : index + 1],
                    view["normaliser_version"][index : index + 1],
                ),
            )
            for index in range(segment.dims["D"])
        ]

    def producer(self, ring_peer: Callable[[], None] = no_bell) -> SlotProducer[RolloutSlot]:
        """The collector's side."""
        return SlotProducer(self._segment, self._slots, ring_peer, self._debug)

    def consumer(self, ring_peer: Callable[[], None] = no_bell) -> SlotConsumer[RolloutSlot]:
        """The learner's side."""
        return SlotConsumer(self._segment, self._slots, ring_peer, self._debug)

    def gauges(self) -> dict[str, int | float]:
        """The `rollout_ring` section of the runtime manifest."""
        counts = ring_counts(self._segment)
        return {
            "slots": self._segment.dims["D"],
            "published_sequence": counts.published,
            "release_sequence": counts.released,
            "occupancy": counts.occupancy,
            "high_water_occupancy": counts.high_water,
            "backpressure_waits": counts.backpressure_waits,
            "backpressure_wait_s": counts.backpressure_wait_ns / 1e9,
            "dropped_rollouts": counts.closed_returns + counts.stop_returns,
        }
