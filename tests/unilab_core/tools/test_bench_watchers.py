"""How `unilab-bench watchers` judges, and one round of it beside a tiny job."""

import os

import pytest

from unilab_core.config.errors import ConfigError
from unilab_core.tools.bench import cli, watchers
from unilab_core.tools.bench.alternating import alternate, differences_pct, slowdowns_pct
from unilab_core.tools.bench.launch import LaunchFailedError
from unilab_core.tools.bench.watcher_processes import WATCHERS
from unilab_core.tools.bench.watchers import Block, compare, holds
from unilab_core.tools.faults.tiny_job import SETTINGS, TASK


def test_each_block_is_compared_with_the_two_beside_it():
    off = [100.0, 110.0, 90.0]
    assert slowdowns_pct(off, [105.0, 95.0]) == pytest.approx([0.0, 5.0])
    assert differences_pct(off) == pytest.approx([10.0, 100.0 * 20.0 / 110.0])
    with pytest.raises(ValueError, match="zip"):
        slowdowns_pct(off, [105.0])


def test_blocks_are_off_and_on_in_turn():
    order = []
    off, on = alternate(2, lambda is_on: order.append(is_on) or len(order))
    assert order == [False, True, False, True, False]
    assert (off, on) == ([1, 3, 5], [2, 4])
    with pytest.raises(ConfigError, match="blocks: got 0"):
        alternate(0, order.append)


def row(kind, speed, **figures):
    off = [Block(steps_per_s=100.0, cpu_us_per_step=50.0)] * 2
    on = Block(steps_per_s=speed, cpu_us_per_step=62.5, **figures)
    return {"watchers": kind, **compare(off, [on])}


def test_a_job_may_be_slower_by_one_percent_while_watchers_watch():
    assert holds(row("monitors", 99.5, shown_per_s=7.0))
    assert not holds(row("monitors", 98.5, shown_per_s=7.0))
    assert not holds(row("monitors", 100.0))
    assert not holds(row("storm", 100.0, shown_per_s=7.0))
    assert holds(row("storm", 100.0, shown_per_s=48.0))
    assert holds(row("reader", 100.0))


def test_processor_time_of_the_job_is_compared_like_its_speed():
    figures = row("monitors", 100.0, shown_per_s=7.0)
    assert figures["job_cpu_cost_pct"] == pytest.approx(20.0)  # 16,000 steps instead of 20,000
    assert figures["job_cpu_off_off_pct"] == 0.0


def test_the_command_line_knows_every_kind():
    assert tuple(WATCHERS) == cli.WATCHER_KINDS


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"blocks": 0, "block_s": 4.0}, "--blocks: got 0, expected at least 1"),
        ({"blocks": 1, "block_s": 0.5}, "--block-s: got 0.5, expected at least 2.5"),
    ],
)
def test_a_measurement_of_nothing_is_refused(settings, text):
    with pytest.raises(ConfigError, match=text):
        watchers.run(algo="sac", task=TASK, **settings)


@pytest.mark.e2e
def test_a_job_that_does_not_start_is_an_error_with_its_last_line():
    with pytest.raises(LaunchFailedError, match=r"exit code 2: .*nonsense"):
        watchers.run(algo="sac", task=TASK, blocks=1, block_s=3.0, overrides=["algo.nonsense=1"])


@pytest.mark.e2e
@pytest.mark.serial
def test_every_kind_of_watcher_looks_at_a_job_and_leaves():
    before = os.sched_getaffinity(0)
    settings = [word for word in SETTINGS["sac"] if "max_iterations" not in word]
    report = watchers.run(
        algo="sac",
        task=TASK,
        blocks=1,
        block_s=3.0,
        apart=len(before) > 1,
        overrides=["algo.num_envs=2", *settings],
    )
    assert os.sched_getaffinity(0) == before
    rows = {row["watchers"]: row for row in report.rows}
    assert list(rows) == ["reader", "monitors", "storm"]
    assert all(row["off_steps_per_s"] > 0 and row["on_steps_per_s"] > 0 for row in rows.values())
    assert all(min(row["off_job_cpu_us_per_step"]) > 0 for row in rows.values())
    assert rows["monitors"]["shown_per_s"] > 0
    assert rows["storm"]["shown_per_s"] > 0
    assert rows["storm"]["cpu_pct"] > 0
