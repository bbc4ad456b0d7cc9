import io

from synthetic_job import SECOND, collector, fold, iteration, run_info

from unilab_monitor.glyphs import ASCII, UNICODE
from unilab_monitor.model import Batch
from unilab_monitor.plain import follow, plain_line, text_view
from unilab_monitor.view import EndView, JobFacts, ProcessView

T = 100 * SECOND


class Recorded:
    """A source that gives batches from a list."""

    def __init__(self, batches):
        self.batches = list(batches)

    def poll(self):
        return self.batches.pop(0)

    def close(self):
        pass


def batch(now_ns, *learner, end=None, attached=True):
    records = [r.record(now_ns) if hasattr(r, "trainable_ns") else r.record() for r in learner]
    return Batch(
        now_ns=now_ns, facts=JobFacts(job="go2-1"), learner=records, attached=attached, end=end
    )


def test_one_line_holds_the_figures_of_the_header():
    view = fold(
        learner=[run_info(trainable_ns=T - 61 * SECOND), iteration(T, 412)],
        collector=[collector(T, 412)],
        now_ns=T,
    )
    assert plain_line(view) == (
        "iteration 412/5000 | 1m01s | ETA 11m19s | reward 4.200 | ep len 213.0 | steps/s 3,137"
        " | rows/s 50,196 | wall 20.400 ms"
    )


def test_a_stall_is_in_the_line():
    view = fold(learner=[run_info(), iteration(T, 412)], now_ns=T + 4_200_000_000)
    assert plain_line(view).endswith(" | learner stalled 4.2 s")


def test_starting_shows_the_phases():
    process = ProcessView(
        role="learner", rank=0, pid=3, phase="startup/logger", awaits=None, age_s=0.1
    )
    view = fold(attached=False, processes=(process,), now_ns=T)
    assert plain_line(view) == "go2-1 starting: learner startup/logger"


def test_lines_follow_until_the_end_and_repeat_nothing():
    out = io.StringIO()
    slept = []
    source = Recorded(
        [
            batch(T, run_info(), iteration(T, 1)),
            batch(T),
            batch(T + SECOND, iteration(T + SECOND, 2)),
            batch(T + SECOND, end=EndView(reason="completed", exit_code=0)),
        ]
    )
    follow(source, out, period_s=5.0, sleep=slept.append)
    lines = out.getvalue().splitlines()
    assert [line.split(" | ")[0] for line in lines] == [
        "iteration 1/5000",
        "iteration 2/5000",
        "go2-1 ended at iteration 2: completed (exit 0)",
    ]
    assert slept == [5.0, 5.0, 5.0]


def test_the_whole_view_as_text_has_no_escape_codes_and_keeps_the_width():
    view = fold(
        learner=[run_info(task="\x1b[31mevil"), iteration(T, 412)],
        collector=[collector(T, 412)],
        now_ns=T,
    )
    for glyphs in (UNICODE, ASCII):
        text = text_view(view, 90, glyphs)
        assert "\x1b" not in text
        assert max(len(line) for line in text.splitlines()) <= 90
        for title in (
            "Metrics",
            "Rewards",
            "Learner (Iter Wall)",
            "Collector (own clock)",
            "System",
        ):
            assert title in text
    assert text.isascii()
