"""From the shared-memory ingress into the replay buffer: one slot is one vector tick.

SYNC POINT pairs (the other ends are in the collector):
    row: `SlotProducer.commit` -> `SlotConsumer.try_acquire`, and back through `release`
"""

from collections.abc import Callable

from unilab_ipc.replay_ingress import TransitionSlot
from unilab_ipc.slot_ring import SlotConsumer
from unilab_learner.replay.buffer import ReplayBuffer, StoredTick


class IngressDrain:
    """The consumer of the ingress. `drain` never waits; every wait of the learner calls it."""

    def __init__(
        self,
        consumer: SlotConsumer[TransitionSlot],
        replay: ReplayBuffer,
        on_tick: Callable[[StoredTick], None],
    ) -> None:
        """Take over the consumer.

        Args:
            consumer: the learner's end of the ring.
            replay: where the rows go.
            on_tick: called with each stored tick.
        """
        self._consumer = consumer
        self._replay = replay
        self._on_tick = on_tick

    def drain(self) -> int:
        """Store every committed tick and give its slot back; the number of ticks."""
        ticks = 0
        while True:
            slot = self._consumer.try_acquire()  # SYNC POINT: row
            if slot is None:
                return ticks
            self._on_tick(
                self._replay.append(
                    obs=slot.obs,
                    critic_obs=slot.critic_obs,
                    action=slot.action,
                    reward=slot.reward,
                    terminated=slot.terminated,
                    truncated=slot.truncated,
                    dropped=slot.dropped,
                    next_obs=slot.next_obs,
                    next_critic_obs=slot.next_critic_obs,
                )
            )
            self._consumer.release()
            ticks += 1

    def close(self) -> None:
        """Take nothing more."""
        self._consumer.close()
