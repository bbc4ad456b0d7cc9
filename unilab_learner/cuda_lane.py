"""The CUDA stream on the timeline (`training.trace_cuda_events`): phases as the device ran them.

At the end of every phase an event is put into the stream; the span between two events is what the
device did, and waited for, in that phase. Times are read only after the learning phase, when the
loop has fetched its figures and the stream is empty, so nothing is waited for. That last event
happens when the host records it: it ties the device's clock to the host's anew in every iteration,
so that neither drift nor the float32 of `elapsed_time` adds up.
"""

from collections.abc import Callable
from typing import Protocol, Self

import torch

from unilab_core.telemetry.timeline.recorder import Lane, TraceRecorder

NS_PER_MS = 1_000_000


class DeviceEvent(Protocol):
    """What is used of `torch.cuda.Event`."""

    def record(self) -> None:
        """Put the event into the current stream."""
        ...

    def elapsed_time(self, end_event: Self) -> float:
        """Milliseconds from this event to a later one; both have happened."""
        ...


class CudaLane:
    """One track, "cuda stream"."""

    def __init__(self, lane: Lane, make_event: Callable[[], DeviceEvent]) -> None:
        self._lane = lane
        self._make_event = make_event
        self._anchor: tuple[DeviceEvent, int] | None = None
        self._marks: list[tuple[str, DeviceEvent]] = []

    def mark(self, name: str, host_ns: int, *, settled: bool) -> None:
        """A phase has ended.

        Args:
            name: of the phase; empty where the span is nobody's.
            host_ns: now.
            settled: the stream is empty, so the event happens now, and all earlier ones have.
        """
        event = self._make_event()
        event.record()
        self._marks.append((name, event))
        if settled:
            self._settle(event, host_ns)

    def _settle(self, last: DeviceEvent, host_ns: int) -> None:
        marks, self._marks = self._marks, []
        if self._anchor is not None:
            anchor, anchor_ns = self._anchor
            before_ns = anchor_ns
            for name, event in marks:
                at_ns = anchor_ns + round(anchor.elapsed_time(event) * NS_PER_MS)
                if event is last:
                    at_ns = host_ns
                if name and at_ns > before_ns:
                    self._lane.slice(name, before_ns, at_ns)
                before_ns = max(at_ns, before_ns)
        self._anchor = (last, host_ns)


def cuda_lane(recorder: TraceRecorder, device: torch.device, *, wanted: bool) -> CudaLane | None:
    """The stream's track where the learner runs on CUDA; None elsewhere."""
    if not wanted or device.type != "cuda":
        return None
    return CudaLane(
        recorder.lane(f"cuda stream {device.index or 0}"),
        lambda: torch.cuda.Event(enable_timing=True),
    )
