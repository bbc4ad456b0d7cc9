"""Held noise: how long, and that an episode's end cuts it."""

import pytest
import torch

from unilab_learner.noise_repeat import NoiseRepeater, repeat_probabilities

CPU = torch.device("cpu")


def lengths_of(noise):
    """Lengths of the runs of equal values in noise[T]."""
    changes = (noise[1:] != noise[:-1]).nonzero().flatten() + 1
    edges = torch.cat((torch.tensor([0]), changes))
    return edges.diff()  # the last, unfinished run is left out


def test_the_probabilities_are_the_truncated_zeta_law():
    got = repeat_probabilities(2.0, 3)
    total = 1 + 1 / 4 + 1 / 9
    assert got.tolist() == pytest.approx([1 / total, 0.25 / total, 1 / 9 / total])


def test_run_lengths_follow_the_probabilities():
    repeater = NoiseRepeater(64, 1, mu=2.0, max_repeat=16, device=CPU)
    generator = torch.Generator().manual_seed(0)
    none = torch.zeros(64)
    history = torch.stack([repeater.next(none, generator)[:, 0].clone() for _ in range(2000)])
    lengths = torch.cat([lengths_of(history[:, env]) for env in range(64)])
    assert lengths.max() <= 16
    counts = torch.bincount(lengths, minlength=17)[1:] / len(lengths)
    expected = repeat_probabilities(2.0, 16)
    assert counts.tolist() == pytest.approx(expected.tolist(), abs=0.01)
    assert history.mean().abs() < 0.05
    assert history.std().item() == pytest.approx(1.0, abs=0.05)


def test_an_episode_s_end_draws_anew_in_its_own_environment_only():
    repeater = NoiseRepeater(2, 3, mu=1e-9, max_repeat=1000, device=CPU)  # long holds
    generator = torch.Generator().manual_seed(1)
    none = torch.zeros(2, dtype=torch.uint8)
    first = repeater.next(none, generator).clone()
    second = repeater.next(none, generator).clone()
    assert torch.equal(first, second)
    third = repeater.next(torch.tensor([0, 1], dtype=torch.uint8), generator)
    assert torch.equal(third[0], first[0])
    assert not torch.equal(third[1], first[1])


def test_a_longest_hold_of_one_is_plain_noise():
    repeater = NoiseRepeater(1, 2, mu=2.0, max_repeat=1, device=CPU)
    generator = torch.Generator().manual_seed(2)
    seen = [repeater.next(torch.zeros(1), generator).clone() for _ in range(50)]
    assert len({tuple(noise.flatten().tolist()) for noise in seen}) == 50
