import threading

import pytest
from synthetic_job import SECOND, iteration, run_info

from unilab_ipc.errors import SegmentMismatch
from unilab_monitor.feed import Feed, Pace
from unilab_monitor.model import Batch
from unilab_monitor.view import JobFacts

T = 100 * SECOND


class Source:
    def __init__(self, error=None):
        self.error = error
        self.polls = 0
        self.closed = False

    def poll(self):
        self.polls += 1
        if self.error and self.polls == 2:
            raise self.error
        records = [run_info().record(T)] if self.polls == 1 else []
        records += [iteration(T + self.polls + k, self.polls * 10 + k).record() for k in range(10)]
        return Batch(now_ns=T, facts=JobFacts(), learner=records, attached=True)

    def close(self):
        self.closed = True


class Hurry(Pace):
    """Hardly any pause; remembers the processor times that it was told."""

    def __init__(self):
        super().__init__(period_s=0.01)
        self.told_s = []

    def pause_s(self, cpu_s):
        self.told_s.append(cpu_s)
        return 0.01


def test_a_burst_of_records_is_delivered_as_one_view():
    views, enough = [], threading.Event()

    def deliver(view):
        views.append(view)
        if len(views) == 3:
            enough.set()

    source = Source()
    feed = Feed(source, deliver=deliver, fail=views.append, pace=Hurry())
    feed.start()
    assert enough.wait(10.0)
    feed.close()
    assert len(feed._pace.told_s) in (len(views) - 1, len(views))
    assert feed._pace.told_s == sorted(feed._pace.told_s)
    assert [view.iteration for view in views[:3]] == [19, 29, 39]
    assert source.closed
    seen = len(views)
    assert seen == source.polls


def test_a_failing_source_ends_the_feed_and_is_reported():
    failures, failed = [], threading.Event()

    def fail(error):
        failures.append(error)
        failed.set()

    source = Source(error=SegmentMismatch("this", "that"))
    feed = Feed(source, deliver=lambda view: None, fail=fail, pace=Hurry())
    feed.start()
    assert failed.wait(10.0)
    feed.close()
    assert source.polls == 2
    assert isinstance(failures[0], SegmentMismatch)


def pauses(*turns_s, period_s=0.5):
    """Pauses of a process whose turns take these processor times."""
    pace, cpu_s, found = Pace(period_s), 7.0, []
    for turn_s in (0.0, *turns_s):
        cpu_s += turn_s
        found.append(pace.pause_s(cpu_s))
    return found


def test_pictures_cost_two_percent_of_a_core_at_most():
    assert pauses(*[0.009] * 100) == [0.5] * 101
    assert pauses(*[0.020] * 100)[-1] == pytest.approx(1.0, abs=0.01)
    assert pauses(*[0.020] * 100, *[0.001] * 100)[-1] == 0.5
    assert pauses(*[1.0] * 100, period_s=3.0)[-1] == 3.0


def test_the_longest_pause_is_two_seconds_whatever_a_picture_costs():
    assert pauses(*[0.5] * 100)[-1] == 2.0


def test_one_dear_picture_is_not_answered_by_a_long_pause():
    assert max(pauses(0.100, *[0.004] * 50)) <= 0.51
