"""The CUDA track, with events of a device whose clock the test owns."""

import pytest
import torch

from unilab_learner.cuda_lane import CudaLane, cuda_lane

MS = 1_000_000


class Device:
    """Events happen at the device time that is set when they are recorded."""

    now_ms = 0.0

    def event(self):
        device = self

        class Event:
            def record(self):
                self.at_ms = device.now_ms

            def elapsed_time(self, end_event):
                return end_event.at_ms - self.at_ms

        return Event()


class Lane:
    def __init__(self):
        self.slices = []

    def slice(self, name, start_ns, end_ns):
        self.slices.append((name, start_ns, end_ns))


@pytest.fixture
def rig():
    device, lane = Device(), Lane()
    return device, lane, CudaLane(lane, device.event)


def mark(rig, name, device_ms, host_ns, settled=False):
    device, _, cuda = rig
    device.now_ms = device_ms
    cuda.mark(name, host_ns, settled=settled)


def test_spans_lie_between_events_on_the_hosts_clock(rig):
    mark(rig, "Learning", 1_000.0, 50 * MS, settled=True)  # ties device 1000 ms to host 50 ms
    mark(rig, "Inference", 1_002.0, 51 * MS)
    mark(rig, "", 1_003.0, 52 * MS)  # nobody's
    mark(rig, "Replay Sample", 1_003.5, 52 * MS)
    mark(rig, "Learning", 1_010.0, 60 * MS, settled=True)
    assert rig[1].slices == [
        ("Inference", 50 * MS, 52 * MS),
        ("Replay Sample", 53 * MS, 53 * MS + MS // 2),
        ("Learning", 53 * MS + MS // 2, 60 * MS),
    ]


def test_every_settled_phase_ties_the_clocks_anew(rig):
    mark(rig, "Learning", 0.0, 0, settled=True)
    mark(rig, "Learning", 10.0, 11 * MS, settled=True)  # the device's clock is 10 % slow
    mark(rig, "Inference", 11.0, 12 * MS)
    mark(rig, "Learning", 20.0, 22 * MS, settled=True)
    assert rig[1].slices[1] == ("Inference", 11 * MS, 12 * MS)
    assert rig[1].slices[2][2] == 22 * MS


def test_nothing_is_shown_before_the_clocks_are_tied(rig):
    mark(rig, "Inference", 5.0, 1 * MS)
    mark(rig, "Learning", 6.0, 2 * MS, settled=True)
    assert rig[1].slices == []


def test_there_is_no_track_without_cuda_or_when_not_wanted():
    assert cuda_lane(None, torch.device("cpu"), wanted=True) is None
    assert cuda_lane(None, torch.device("cuda"), wanted=False) is None
