"""The arithmetic of the trace benchmark."""

import pytest

from unilab_core.tools.bench.trace import Block, compare, holds


def blocks(*speeds, **figures):
    return [Block(steps_per_s=speed, **figures) for speed in speeds]


def test_each_traced_run_is_compared_with_the_runs_beside_it():
    row = compare(blocks(100.0, 110.0, 90.0), blocks(105.0, 95.0, lines=7, bytes_per_s=3.0))
    # 105 against 105 costs nothing, 95 against 100 costs 5 %; off: 10 % and 18.2 % apart.
    assert row["on_off_pct"] == pytest.approx(2.5)
    assert row["off_off_pct"] == pytest.approx((10.0 + 100.0 * 20.0 / 110.0) / 2.0)
    assert row["off_steps_per_s"] == 100.0
    assert row["lines"] == 14
    assert holds(row)


def test_a_cost_beyond_the_noise_does_not_hold():
    row = compare(blocks(100.0, 101.0), blocks(90.0, lines=7))
    assert row["on_off_pct"] > row["off_off_pct"]
    assert not holds(row)


@pytest.mark.parametrize("figures", [{"lines": 0}, {"lines": 7, "dropped": 1}])
def test_a_trace_that_lost_lines_or_wrote_none_does_not_hold(figures):
    assert not holds(compare(blocks(100.0, 100.0), blocks(100.0, **figures)))
