"""A recorder whose thread does not flush by itself: tests decide when."""

import os

import pytest

from unilab_core.telemetry.timeline.packets import ProcessId
from unilab_core.telemetry.timeline.recorder import TraceRecorder


@pytest.fixture
def make_recorder(tmp_path):
    made = []

    def make(role="learner", sequence=2, name="part.pftrace", **options):
        options = {"flush_interval_s": 3600.0, **options}
        process = ProcessId(name=f"{role}-0", pid=os.getpid(), sequence=sequence)
        made.append(TraceRecorder(tmp_path / name, process, **options))
        return made[-1]

    yield make
    for recorder in made:
        recorder.close()
