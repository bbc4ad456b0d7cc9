"""Publishing and answering in the inference slot, one observable store at a time.

The ports do these steps without a break; interleaving and crash tests need to stop between them.
"""

from collections.abc import Iterator

from unilab_ipc.inference_slot import CollectorPort, LearnerPort

publish = CollectorPort.publish  # the real ones: crash tests replace the methods
write_answer = LearnerPort._write_answer


def publish_steps(port: CollectorPort, seq: int) -> Iterator[str]:
    """`CollectorPort.publish`, with a break before the ring."""
    ring, port._ring_peer = port._ring_peer, _no_ring
    try:
        publish(port, seq)
    finally:
        port._ring_peer = ring
    yield "request published"
    ring()


def respond_steps(
    port: LearnerPort, seq: int, policy_version: int, closed: bool = False
) -> Iterator[str]:
    """`LearnerPort.respond`, with a break after each store and before the ring."""
    write_answer(port, seq, policy_version, closed)
    yield "answer written"
    port._response_seq[0] = seq
    yield "answer published"
    port._ring_peer()


def _no_ring() -> None:
    pass
