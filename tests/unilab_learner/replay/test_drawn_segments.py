"""First draws and losses of traced segments."""

import numpy as np

from unilab_learner.replay.drawn_segments import DrawnSegments


def segments(replay_ticks=12, envs=(0, 3, 6)):
    return DrawnSegments(ticks_per_segment=4, replay_ticks=replay_ticks, traced_envs=envs)


def draw(found, ticks, envs, written):
    return found.draw(np.array(ticks, np.int64), np.array(envs, np.int64), written)


def test_a_segment_is_drawn_once_and_by_environment():
    found = segments()
    assert draw(found, [0, 1, 5, 5], [0, 0, 3, 6], 8) == [(0, [0]), (1, [3, 6])]
    assert draw(found, [2, 6], [0, 3], 8) == []
    assert draw(found, [3], [3], 8) == [(0, [3])]


def test_a_segment_that_is_still_written_does_not_count_yet():
    found = segments()
    assert draw(found, [4], [0], 7) == []
    assert draw(found, [4], [0], 8) == [(1, [0])]


def test_what_was_never_drawn_is_lost_when_its_last_row_is_overwritten():
    found = segments()
    draw(found, [0, 4], [3, 0], 8)
    assert found.expire(15) == []  # ticks 3 to 14 are stored
    assert found.expire(16) == [(0, [0, 6])]
    assert found.expire(16) == []
    assert found.expire(20) == [(1, [3, 6])]


def test_places_are_free_again_after_a_turn_of_the_ring():
    found = segments()
    for number in range(20):
        written = (number + 1) * 4
        assert draw(found, [number * 4], [6], written) == [(number, [6])]
        lost = found.expire(written)
        assert lost == ([(number - 3, [0, 3])] if number >= 3 else [])


def test_one_traced_environment_is_enough():
    found = segments(envs=(0,))
    assert draw(found, [1], [0], 4) == [(0, [0])]
    assert draw(found, [], [], 4) == []
