"""The off-policy loop with its traced parts: the same training, and its arrows."""

import os

import pytest

from unilab_core.telemetry.phase_timer import PhaseTimer
from unilab_core.telemetry.timeline.figures import cycle_figures
from unilab_core.telemetry.timeline.packets import ProcessId
from unilab_core.telemetry.timeline.reader import Slice, TimelineReader
from unilab_core.telemetry.timeline.recorder import TraceRecorder
from unilab_core.telemetry.timeline.session import flow_id
from unilab_learner.off_policy_loop import LoopParts, OffPolicyLoop
from unilab_learner.timeline import LearnerTimeline, OffPolicyTimeline, TracedDrain


@pytest.fixture
def traced(tiny_run, tmp_path):
    """A tiny run whose loop was built with the traced parts; and where its file is."""
    run = tiny_run("algo.max_iterations=12")
    path = tmp_path / "part.pftrace"
    recorder = TraceRecorder(path, ProcessId(name="learner-0", pid=os.getpid(), sequence=2))
    parts = run.parts
    consumer = parts.ingress._consumer
    parts.ingress = TracedDrain(consumer, parts.learner.replay, parts.learner.observe)
    base = LearnerTimeline(
        recorder, rank=0, thread_time=False, iteration=lambda: parts.progress.iteration
    )
    parts.ingress.timeline = OffPolicyTimeline(
        base,
        server=parts.server,
        replay=parts.learner.replay,
        occupancy=lambda: consumer.occupancy,
    )
    parts.make_timer = parts.ingress.timeline.make_timer
    run.loop = OffPolicyLoop(parts)
    yield run, recorder
    recorder.close()


def test_loops_time_themselves_plainly_unless_told_otherwise():
    assert LoopParts.__dataclass_fields__["make_timer"].default is PhaseTimer


def test_figures_from_the_trace_are_those_that_were_reported(traced):
    run, recorder = traced
    assert run.run() == "completed"
    recorder.close()
    reported = {
        r["iteration"]: r for r in run.records.read(10_000)
        if r["kind"] == "iteration" and r["iteration"] > 0
    }  # fmt: skip
    found = list(cycle_figures([recorder.path]))
    assert [cycle.number for cycle in found] == sorted(reported)
    for cycle in found:
        record = reported[cycle.number]
        assert cycle.wall_ns / 1e6 == pytest.approx(record["wall_ms"])
        for tag, value in record["learner"].items():
            assert cycle.values[tag] == pytest.approx(value), tag
        assert cycle.exclusive_ns / 1e6 == pytest.approx(record["accounted_ms"])


def test_every_served_tick_is_committed_and_those_drawn_are_trained_on(traced):
    run, recorder = traced
    run.run()
    recorder.close()
    slices = [e for e in TimelineReader([recorder.path]).events() if isinstance(e, Slice)]

    def ticks(name, field="flows"):
        return [flow for s in slices if s.name == name for flow in getattr(s, field)]

    served = [flow_id("tick", 0, tick) for tick in range(3 + 12)]
    assert ticks("Inference") == ticks("Collector Release") == served
    assert ticks("Ingress Commit") == served
    drawn = ticks("Gather")
    assert drawn == ticks("Learning", "ends")
    assert len(set(drawn)) == len(drawn)  # each is followed to its first batch only
    assert set(drawn) <= set(served)
    assert len(drawn) >= 3
