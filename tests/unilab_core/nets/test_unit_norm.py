"""Unit-norm layers: spheres, statistics, and the hand-written backward against autograd."""

import math

import pytest
import torch
from torch.nn import functional

from unilab_core.nets.unit_norm import (
    BATCH_NORM_EPS,
    UnitBatchNorm,
    UnitLinear,
    UnitRmsNorm,
    UnitTrunk,
    _product_norm_relu,
    project,
    set_momentum,
)

M, H, B = 2, 5, 16


def scrambled(layer, seed=0):
    """Parameters anywhere, as an optimiser may leave them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for param in layer.parameters():
            param.add_(torch.randn(param.shape, generator=generator))
    return layer


def test_projection_by_hand():
    linear = UnitLinear(1, 2, 1)
    batch_norm, rms_norm = UnitBatchNorm(1, 2), UnitRmsNorm(1, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[[3.0, 4.0]]]))
        batch_norm.gain_shift.copy_(torch.tensor([[[1.0, 2.0], [2.0, 4.0]]]))  # length 5
        rms_norm.weight.copy_(torch.tensor([[3.0, 4.0]]))
    for layer in (linear, batch_norm, rms_norm):
        project(layer)
    assert linear.weight.flatten().tolist() == pytest.approx([0.6, 0.8])
    factor = math.sqrt(2) / 5
    assert batch_norm.gain_shift.flatten().tolist() == pytest.approx(
        [factor, 2 * factor, 2 * factor, 4 * factor]
    )
    assert rms_norm.weight.flatten().tolist() == pytest.approx([0.6 * 2**0.5, 0.8 * 2**0.5])


def test_every_network_of_the_ensemble_has_its_own_sphere():
    trunk = scrambled(UnitTrunk(M, 3, H, num_blocks=2, expansion=3))
    project(trunk)
    for layer in trunk.modules():
        if isinstance(layer, UnitLinear):
            lengths = layer.weight.norm(dim=-1)
            assert torch.allclose(lengths, torch.ones_like(lengths), atol=1e-6)
        elif isinstance(layer, UnitBatchNorm):
            width = layer.gain_shift.shape[-1]
            lengths = layer.gain_shift.flatten(1).norm(dim=-1)
            assert lengths.tolist() == pytest.approx([math.sqrt(width)] * M)
        elif isinstance(layer, UnitRmsNorm):
            assert layer.weight.norm(dim=-1).tolist() == pytest.approx([math.sqrt(H)] * M)


def test_the_fused_layer_equals_torch_s_forwards_and_backwards():
    torch.manual_seed(0)
    linear, layer = UnitLinear(M, 3, H), scrambled(UnitBatchNorm(M, H))
    rows = torch.randn(M, 3, B, requires_grad=True)
    got = _product_norm_relu(linear, layer, rows)
    gain, shift = (part.reshape(-1) for part in layer.gain_shift.unbind(1))
    product = torch.stack([w @ x for w, x in zip(linear.weight, rows, strict=True)])
    expected = functional.batch_norm(
        product.reshape(1, M * H, B), None, None, gain, shift, True, 0.1, BATCH_NORM_EPS
    ).relu()
    assert torch.allclose(got.reshape(1, M * H, B), expected, atol=1e-5)
    weights = torch.randn(M, H, B)
    wanted = (rows, linear.weight, layer.gain_shift)
    one = torch.autograd.grad((got * weights).sum(), wanted)
    other = torch.autograd.grad((expected.view(M, H, B) * weights).sum(), wanted)
    for mine, theirs in zip(one, other, strict=True):
        assert torch.allclose(mine, theirs, atol=2e-4), (mine - theirs).abs().max()


def identity(width):
    """A product that changes nothing."""
    linear = UnitLinear(1, width, width)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(width).unsqueeze(0))
    return linear


def test_running_statistics_follow_by_the_momentum_with_the_unbiased_variance():
    layer = UnitBatchNorm(1, 1)
    _product_norm_relu(identity(1), layer, torch.tensor([[[1.0, 3.0]]]))
    # mean 2, unbiased variance 2
    assert layer.running_mean.item() == pytest.approx(0.01 * 2)
    assert layer.running_var.item() == pytest.approx(0.99 + 0.01 * 2)
    set_momentum(layer, 0.5)
    layer.standardize(torch.tensor([[[1.0, 3.0]]]))
    assert layer.running_mean.item() == pytest.approx(0.5 * 0.02 + 1.0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_batch_that_is_not_finite_leaves_the_running_statistics_of_its_feature_alone(bad):
    layer = UnitBatchNorm(1, 2)
    layer.standardize(torch.tensor([[[1.0, bad], [1.0, 3.0]]]))
    assert layer.running_mean[0].tolist() == pytest.approx([0.0, 0.02])
    assert layer.running_var[0].tolist() == pytest.approx([1.0, 1.01])


def test_running_statistics_of_the_batch_itself_give_the_same_answer():
    trunk = scrambled(UnitTrunk(M, 3, H, num_blocks=2, expansion=2))
    project(trunk)
    rows = 3.0 + 2.0 * torch.randn(65536, 3)
    set_momentum(trunk, 1.0)
    trained = trunk(rows, batch_stats=True)
    # Equal but for the unbiased variance: a factor 65536 / 65535.
    assert torch.allclose(trunk(rows, batch_stats=False), trained, atol=5e-3)


def test_only_the_rows_kept_come_back_but_all_make_the_statistics():
    trunk = UnitTrunk(M, 3, H, num_blocks=1, expansion=2)
    rows = torch.randn(B, 3)
    whole = trunk(rows, batch_stats=True)
    part = trunk(rows, batch_stats=True, keep=slice(4, None))
    assert torch.allclose(part, whole[..., 4:])
    alone = trunk(rows[4:], batch_stats=True)
    assert not torch.allclose(part, alone, atol=1e-3)


def test_with_running_statistics_only_the_input_gets_a_gradient():
    trunk = UnitTrunk(M, 3, H, num_blocks=1, expansion=2)
    rows = torch.randn(B, 3, requires_grad=True)
    trunk(rows, batch_stats=False).square().sum().backward()
    assert rows.grad.abs().sum() > 0
    touched = {name for name, param in trunk.named_parameters() if param.grad is not None}
    assert touched == {"output_norm.weight"}
