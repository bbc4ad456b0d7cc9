"""Running observation normaliser."""

import pytest
import torch

from unilab_core.nets.normalizer import ObsNormalizer


def test_moments_of_two_batches_are_those_of_all_rows():
    rows = torch.tensor([[1.0, 10.0], [3.0, 10.0], [5.0, 40.0]])
    normalizer = ObsNormalizer(2)
    normalizer.update(rows[:2])
    normalizer.update(rows[2:])
    assert normalizer.mean.tolist() == pytest.approx([3.0, 20.0])
    # Population variances: (4 + 0 + 4) / 3 and (100 + 100 + 400) / 3.
    assert normalizer.var.tolist() == pytest.approx([8 / 3, 200.0])


def test_output_is_shifted_and_divided_by_std_plus_a_floor():
    normalizer = ObsNormalizer(1)
    normalizer.update(torch.tensor([[1.0], [3.0]]))
    assert normalizer(torch.tensor([[4.0]])).item() == pytest.approx((4 - 2) / (1 + 0.01))


def test_a_loaded_normaliser_gives_the_same_output():
    normalizer = ObsNormalizer(4)
    normalizer.update(torch.randn(100, 4) * 3 + 1)
    other = ObsNormalizer(4)
    other.load_state_dict(normalizer.state_dict())
    rows = torch.randn(5, 4)
    assert torch.equal(other(rows), normalizer(rows))


def test_a_normaliser_without_data_is_the_identity():
    assert ObsNormalizer(1)(torch.tensor([[2.02]])).item() == pytest.approx(2.02)
