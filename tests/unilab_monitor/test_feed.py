import threading

from synthetic_job import SECOND, iteration, run_info

from unilab_ipc.errors import SegmentMismatch
from unilab_monitor.feed import Feed
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


def test_a_burst_of_records_is_delivered_as_one_view():
    views, enough = [], threading.Event()

    def deliver(view):
        views.append(view)
        if len(views) == 3:
            enough.set()

    source = Source()
    feed = Feed(source, deliver=deliver, fail=views.append, period_s=0.01)
    feed.start()
    assert enough.wait(10.0)
    feed.close()
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
    feed = Feed(source, deliver=lambda view: None, fail=fail, period_s=0.01)
    feed.start()
    assert failed.wait(10.0)
    feed.close()
    assert source.polls == 2
    assert isinstance(failures[0], SegmentMismatch)
