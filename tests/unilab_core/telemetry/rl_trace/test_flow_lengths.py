"""Percentiles of settled and moving lengths are those of all of them together."""

import numpy as np
import pytest

from unilab_core.telemetry.rl_trace import flow_lengths
from unilab_core.telemetry.rl_trace.flow_lengths import Lengths, SettledLengths

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

values = st.lists(st.integers(0, 40).map(float), max_size=60).map(np.array)


@hypothesis.given(values, values)
def test_percentiles_are_those_of_numpy(settled, rest):
    both = np.concatenate((settled, rest))
    hypothesis.assume(len(both))
    lengths = Lengths(np.sort(settled), rest)
    expected = np.percentile(both, (50, 90, 99)).tolist()
    assert lengths.percentiles() == expected
    assert (len(lengths), lengths.mean, lengths.max) == (len(both), both.mean(), both.max())


def test_many_that_still_change_are_not_sorted(monkeypatch):
    monkeypatch.setattr(flow_lengths, "MAX_SORTED", 2)
    lengths = Lengths(np.array([1.0, 9.0]), np.array([5.0, 3.0, 7.0]))
    assert lengths.percentiles() == pytest.approx([5.0, 8.2, 8.92])


@hypothesis.given(st.lists(values, min_size=1, max_size=6), st.data())
def test_what_is_taken_out_is_as_if_it_had_never_been_in(blocks, data):
    settled = SettledLengths(["a"])
    for block in blocks:
        settled.add([{"a": block}])
    gone = data.draw(st.sets(st.integers(0, len(blocks) - 1)))
    for place in gone:
        settled.remove({"a": blocks[place]})
    kept = [block for place, block in enumerate(blocks) if place not in gone]
    expected = np.sort(np.concatenate([np.empty(0), *kept]))
    assert settled.lengths("a", []).settled.tolist() == expected.tolist()
