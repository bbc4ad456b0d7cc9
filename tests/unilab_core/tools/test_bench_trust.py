"""How `unilab-bench sequence` and `busy` judge, and a small sequence between two processes."""

import numpy as np
import pytest

from unilab_core.config.errors import ConfigError
from unilab_core.tools.bench import busy, sequence


@pytest.mark.e2e
@pytest.mark.serial
def test_a_small_sequence_accounts_for_every_row_and_record():
    report = sequence.run(transitions=50_000, envs=16, records=20_000)
    assert report.ok, report.rows
    ingress, eager, lazy = report.rows
    surplus = sequence.SURPLUS_SLOTS * 16
    assert ingress["sent"] == 50_000 + surplus
    assert ingress["seen_once"] >= 50_000
    assert ingress["seen_once"] + ingress["counted_lost"] == ingress["sent"]
    assert 0 < ingress["counted_lost"] <= surplus
    assert ingress["waits"] > 0
    assert lazy["counted_lost"] > 0
    assert eager["seen_once"] > 0


def test_the_tally_finds_what_is_lost_doubled_and_foreign():
    tally = sequence.Tally(10)
    tally.take(np.array([0, 1, 2, 3], np.uint32))
    tally.take(np.array([3, 4], np.uint32))
    tally.take(np.array([7, 200], np.uint32))
    figures = tally.figures(counted_lost=4)
    assert figures == {
        "sent": 10, "seen_once": 5, "doubled": 1, "counted_lost": 4, "damaged": 1,
    }  # fmt: skip
    assert not sequence.holds(figures)


def row(**changes):
    return {"sent": 10, "seen_once": 8, "doubled": 0, "counted_lost": 2, "damaged": 0, **changes}


def test_a_sequence_holds_only_if_everything_is_seen_once_or_counted():
    assert sequence.holds(row())
    for changes in ({"counted_lost": 1}, {"seen_once": 9}, {"doubled": 1}, {"damaged": 1}):
        assert not sequence.holds(row(**changes))
    assert not sequence.holds(row(seen_once=0, counted_lost=10))


def test_a_busy_run_holds_only_without_alarms_and_with_every_spinner():
    good = {"failure": None, "alarms": 0, "spinners": 8, "iterations": 100}
    assert busy.holds(good, 8)
    for change in (
        {"failure": "exit code 13"}, {"alarms": 1}, {"spinners": 7}, {"iterations": None},
    ):  # fmt: skip
        assert not busy.holds({**good, **change}, 8)


def test_what_the_supervisor_says_about_a_standstill_is_an_alarm(tmp_path):
    log = tmp_path / "launcher.log"
    log.write_text(
        "iteration 3/10\n"
        "warning: learner-0 (pid 5) no progress for 10 s in phase training/learner_update\n"
        "learner-0 (pid 5) goes on after 12 s\n"
    )
    assert len(busy.alarm_lines(log)) == 2
    assert busy.alarm_lines(tmp_path / "none.log") == []


@pytest.mark.parametrize("numbers", [{"transitions": 0}, {"envs": -1}, {"records": 2**40}])
def test_a_number_that_cannot_work_is_named(numbers):
    settings = {"transitions": 10, "envs": 2, "records": 10, **numbers}
    with pytest.raises(ConfigError, match=f"--{next(iter(numbers))}: got"):
        sequence.run(**settings)
