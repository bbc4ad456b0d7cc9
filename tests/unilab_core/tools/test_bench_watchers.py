"""How `unilab-bench watchers` judges, and one round of it beside a tiny job."""

import pytest

from unilab_core.config.errors import ConfigError
from unilab_core.tools.bench import watchers
from unilab_core.tools.bench.alternating import differences_pct, slowdowns_pct
from unilab_core.tools.bench.watchers import Block, compare, holds
from unilab_core.tools.faults.tiny_job import SETTINGS, TASK


def test_each_block_is_compared_with_the_two_beside_it():
    off = [100.0, 110.0, 90.0]
    assert slowdowns_pct(off, [105.0, 95.0]) == pytest.approx([0.0, 5.0])
    assert differences_pct(off) == pytest.approx([10.0, 100.0 * 20.0 / 110.0])
    with pytest.raises(ValueError, match="zip"):
        slowdowns_pct(off, [105.0])


def row(kind, speed, **figures):
    off = [Block(steps_per_s=100.0), Block(steps_per_s=100.0)]
    return {"watchers": kind, **compare(off, [Block(steps_per_s=speed, **figures)])}


def test_a_job_may_be_slower_by_one_percent_while_watchers_watch():
    assert holds(row("monitors", 99.5, shown=7))
    assert not holds(row("monitors", 98.5, shown=7))
    assert not holds(row("monitors", 100.0, shown=0))
    assert not holds(row("storm", 100.0))
    assert holds(row("reader", 100.0))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"blocks": 0, "block_s": 1.0}, "--blocks: got 0"),
        ({"blocks": 1, "block_s": 0}, "--block-s"),
    ],
)
def test_a_measurement_of_nothing_is_refused(settings, text):
    with pytest.raises(ConfigError, match=text):
        watchers.run(algo="sac", task=TASK, **settings)


@pytest.mark.e2e
@pytest.mark.serial
def test_every_kind_of_watcher_looks_at_a_job_and_leaves():
    settings = [word for word in SETTINGS["sac"] if "max_iterations" not in word]
    report = watchers.run(
        algo="sac", task=TASK, blocks=1, block_s=0.5, overrides=["algo.num_envs=2", *settings]
    )
    rows = {row["watchers"]: row for row in report.rows}
    assert list(rows) == ["reader", "monitors", "storm"]
    assert all(row["off_steps_per_s"] > 0 and row["on_steps_per_s"] > 0 for row in rows.values())
    assert rows["monitors"]["shown"] > 0
    assert rows["storm"]["shown"] > 0
    assert rows["storm"]["cpu_pct"] > 0
