"""Transitions of SAC and FlashSAC: one slot is one vector tick, each arrives exactly once.

Protocol, ownership and crash behaviour: `slot_ring`. The learner drains the ring whenever it waits
for anything, so a full ring and a full inference slot can never wait for each other.

Symbols: D slots, E environments, O/C observation widths, A action width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from unilab_ipc.layout import Dims
from unilab_ipc.memory import Segment
from unilab_ipc.slot_ring import SlotConsumer, SlotProducer, no_bell, ring_counts

DEFAULT_DEPTH = 2


@dataclass(slots=True)
class TransitionSlot:
    """Arrays of one slot: E transitions of one tick."""

    obs: NDArray[Any]
    """[E, O]"""
    critic_obs: NDArray[Any]
    """[E, C]"""
    action: NDArray[Any]
    """[E, A]"""
    reward: NDArray[Any]
    """[E]"""
    terminated: NDArray[Any]
    """[E]"""
    truncated: NDArray[Any]
    """[E]"""
    dropped: NDArray[Any]
    """[E] 1: a placeholder in the place of data that was not finite"""
    next_obs: NDArray[Any]
    """[E, O], the true next observation (final where the episode ended)"""
    next_critic_obs: NDArray[Any]
    """[E, C]"""
    seq: int = -1

    def payload(self) -> tuple[NDArray[Any], ...]:
        """Every array of the slot."""
        return (
            self.obs,
            self.critic_obs,
            self.action,
            self.reward,
            self.terminated,
            self.truncated,
            self.dropped,
            self.next_obs,
            self.next_critic_obs,
        )


class ReplayIngress:
    """The ring of one rank; each side is obtained once."""

    __slots__ = ("_debug", "_segment", "_slots")

    def __init__(self, segment: Segment, dims: Dims | None = None, debug: bool = False) -> None:
        if dims is not None and dict(dims) != segment.dims:
            raise ValueError(f"ingress geometry must be {segment.dims}, got {dict(dims)}")
        view = segment.view
        self._segment = segment
        self._debug = debug
        self._slots = [
            TransitionSlot(
                obs=view["obs"][index],
                critic_obs=view["critic_obs"][index],
                action=view["action"][index],
                reward=view["reward"][index],
                terminated=view["terminated"][index],
                truncated=view["truncated"][index],
                dropped=view["dropped"][index],
                next_obs=view["next_obs"][index],
                next_critic_obs=view["next_critic_obs"][index],
            )
            for index in range(segment.dims["D"])
        ]

    def producer(self, ring_peer: Callable[[], None] = no_bell) -> SlotProducer[TransitionSlot]:
        """The collector's side."""
        return SlotProducer(self._segment, self._slots, ring_peer, self._debug)

    def consumer(self, ring_peer: Callable[[], None] = no_bell) -> SlotConsumer[TransitionSlot]:
        """The learner's side."""
        return SlotConsumer(self._segment, self._slots, ring_peer, self._debug)

    def gauges(self) -> dict[str, int | float]:
        """The `replay_ingress` section of the runtime manifest."""
        counts = ring_counts(self._segment)
        early_returns = counts.closed_returns + counts.stop_returns
        return {
            "ingress_depth": self._segment.dims["D"],
            "ingress_slot_rows": self._segment.dims["E"],
            "published_sequence": counts.published,
            "release_sequence": counts.released,
            "occupancy": counts.occupancy,
            "high_water_occupancy": counts.high_water,
            "backpressure_waits": counts.backpressure_waits,
            "backpressure_wait_s": counts.backpressure_wait_ns / 1e9,
            "early_returns": early_returns,
            "dropped_batches": early_returns,
            "closed_returns": counts.closed_returns,
            "stop_returns": counts.stop_returns,
        }
