"""A traced timer is a plain timer: the same figures, and slices of exactly these lengths."""

import pytest

from unilab_core.telemetry import phase_timer
from unilab_core.telemetry.phase_timer import PhaseTimer
from unilab_core.telemetry.timeline.session import back_to_back
from unilab_core.telemetry.timeline.traced_timer import CpuTracedTimer, TracedTimer

SCRIPT = ["start", "a", "b", None, "a", "start", "b", "a", None, "start", "a"]


@pytest.fixture
def clock(monkeypatch):
    times = iter(k * k * 1000 for k in range(1, 1000))
    monkeypatch.setattr(phase_timer.time, "monotonic_ns", lambda: next(times))


def play(timer):
    for step in SCRIPT:
        timer.start_cycle() if step == "start" else timer.lap(step)


@pytest.mark.parametrize("kind", [TracedTimer, CpuTracedTimer])
def test_slices_and_figures_are_the_plain_timers(kind, monkeypatch):
    def with_clock(make):
        times = iter(k * k * 1000 for k in range(1, 1000))
        monkeypatch.setattr(phase_timer.time, "monotonic_ns", lambda: next(times))
        timer = make()
        play(timer)
        return timer

    laps, cycles, cpus = [], [], []

    def handler(phase):
        def handle(start_ns, end_ns, cpu):
            laps.append((phase, start_ns, end_ns))
            cpus.append(cpu)

        return handle

    plain = with_clock(lambda: PhaseTimer("ab"))
    traced = with_clock(
        lambda: kind("ab", {p: handler(p) for p in "ab"}, lambda *span: cycles.append(span))
    )
    assert (traced.phase_ns, traced.wall_ns, traced.cycles) == (
        plain.phase_ns, plain.wall_ns, plain.cycles,
    )  # fmt: skip
    assert sum(end - start for start, end in cycles) == plain.wall_ns
    inside = [lap for lap in laps if lap[2] <= cycles[-1][1]]
    for phase in "ab":
        spent = sum(end - start for name, start, end in inside if name == phase)
        assert spent == plain.phase_ns[phase]
    if kind is TracedTimer:
        assert set(cpus) == {None}
    else:
        assert all(start <= end for start, end in cpus)


def test_an_undeclared_phase_is_still_an_error():
    timer = TracedTimer("a", {}, lambda *_: None)
    timer.start_cycle()
    with pytest.raises(KeyError):
        timer.lap("b")


def test_parts_of_known_length_follow_each_other_and_stay_inside():
    tags = {
        "backend": "Perf/collector_env_step_backend_ms",
        "update_state": "Perf/collector_env_step_update_state_ms",
        "reset_done": "Perf/collector_env_step_reset_done_ms",
    }
    lengths = {"backend": 40, "update_state": 0, "reset_done": 90}
    assert back_to_back(100, 200, lengths, tags) == [
        ("Backend Step", tags["backend"], 100, 140),
        ("Reset Done", tags["reset_done"], 140, 200),
    ]
