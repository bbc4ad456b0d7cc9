"""Layers whose parameters live on spheres (FlashSAC), for M independent networks at once.

    UnitLinear       y = W x                      every row of W has length 1, no bias
    UnitBatchNorm    y = gain (x - mean) / std + shift   (gain, shift) has length sqrt(H)
    UnitRmsNorm      y = gain x / rms(x)          gain has length sqrt(H)
    UnitTrunk        BatchNorm -> Linear -> blocks -> RmsNorm
        block        x + relu(BN(Linear(relu(BN(Linear(x)))))), H -> expansion * H -> H

`project` puts the parameters back onto their spheres; call it after every optimiser step. What is
learned are directions, so a learning rate means the same angle in every layer, at any time.

Activations lie feature-major, [M, H, B]: the M matrix products are one batched product, and the
statistics over the batch run along contiguous memory (a third of the time of [B, M * H] on a CPU).

A forward pass either uses the statistics of its batch and moves the running ones
(`batch_stats=True`, for training), or uses the running ones; then the parameters are constants,
folded into the products, and gradients reach the input alone.

Legend: M networks, B rows, I input width, H width.
"""

import math

import torch
from torch import Tensor, nn

BATCH_NORM_EPS = 1e-5
RMS_NORM_EPS = 1e-6


class UnitLinear(nn.Module):
    """[M or 1, I, B] -> [M, H, B]."""

    def __init__(self, num_networks: int, input_width: int, output_width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_networks, output_width, input_width))
        for matrix in self.weight.unbind():
            nn.init.orthogonal_(matrix)

    def forward(self, rows: Tensor) -> Tensor:
        """One batched product."""
        return torch.bmm(self.weight, rows.expand(self.weight.shape[0], -1, -1))

    @torch.no_grad()
    def project(self) -> None:
        """Rows of length 1."""
        self.weight.div_(torch.linalg.vector_norm(self.weight, dim=-1, keepdim=True))


class UnitBatchNorm(nn.Module):
    """Statistics of M networks with H features each."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, num_networks: int, width: int, *, shared_input: bool = False) -> None:
        super().__init__()
        self.momentum = 0.01
        gain_shift = torch.zeros(num_networks, 2, width)
        gain_shift[:, 0] = 1.0
        self.gain_shift = nn.Parameter(gain_shift)
        shape = (1 if shared_input else num_networks, width)
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))

    def standardize(self, rows: Tensor) -> Tensor:
        """(rows - mean) / std of the batch, without gain and shift."""
        rows = rows.float()
        mean = rows.mean(dim=-1, keepdim=True)
        centred = rows - mean
        var = centred.square().mean(dim=-1)
        self.track(mean.detach().squeeze(-1), var.detach(), rows.shape[-1])
        return centred * (var + BATCH_NORM_EPS).rsqrt().unsqueeze(-1)

    def folded(self) -> tuple[Tensor, Tensor]:
        """Factor and offset, each [M, H], of the whole layer under the running statistics."""
        gain, shift = self.gain_shift.detach().unbind(dim=1)
        factor = gain * (self.running_var + BATCH_NORM_EPS).rsqrt()
        return factor, shift - self.running_mean * factor

    @torch.no_grad()
    def track(self, mean: Tensor, var: Tensor, num_rows: int) -> None:
        """Move the running statistics; a feature whose batch is not finite keeps its old ones."""
        unbiased = var * (num_rows / max(num_rows - 1, 1))
        for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
            # Weights are guarded by the optimiser, which refuses its step; nothing guards these.
            change = (new - running).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            running.add_(change, alpha=self.momentum)

    @torch.no_grad()
    def project(self) -> None:
        """(gain, shift) of each network to length sqrt(H)."""
        pairs = self.gain_shift.flatten(start_dim=1)
        length = torch.linalg.vector_norm(pairs, dim=-1, keepdim=True)
        pairs.mul_(math.sqrt(self.gain_shift.shape[-1]) / length)


class UnitRmsNorm(nn.Module):
    """Each column of [M, H, B] divided by its root mean square, then a gain per feature."""

    def __init__(self, num_networks: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_networks, width))

    def forward(self, rows: Tensor) -> Tensor:
        """[M, H, B] -> [M, H, B]."""
        rows = rows.float()
        inverse = (rows.square().mean(dim=1, keepdim=True) + RMS_NORM_EPS).rsqrt()
        return rows * inverse * self.weight.unsqueeze(-1)

    @torch.no_grad()
    def project(self) -> None:
        """Gains of each network to length sqrt(H)."""
        length = torch.linalg.vector_norm(self.weight, dim=-1, keepdim=True)
        self.weight.mul_(math.sqrt(self.weight.shape[-1]) / length)


class UnitBlock(nn.Module):
    """The residual block of the module's text."""

    def __init__(self, num_networks: int, width: int, expansion: int) -> None:
        super().__init__()
        inner = expansion * width
        self.up = UnitLinear(num_networks, width, inner)
        self.up_norm = UnitBatchNorm(num_networks, inner)
        self.down = UnitLinear(num_networks, inner, width)
        self.down_norm = UnitBatchNorm(num_networks, width)

    def forward(self, rows: Tensor, *, batch_stats: bool) -> Tensor:
        """[M, H, B] -> [M, H, B]."""
        if batch_stats:
            inner = _product_norm_relu(self.up, self.up_norm, rows)
            return rows + _product_norm_relu(self.down, self.down_norm, inner)
        inner = _folded_product(self.up, self.up_norm, rows).relu()
        return rows + _folded_product(self.down, self.down_norm, inner).relu()


class UnitTrunk(nn.Module):
    """rows[B, I] -> features[M, H, B]."""

    def __init__(
        self, num_networks: int, input_width: int, width: int, *, num_blocks: int, expansion: int
    ) -> None:
        super().__init__()
        self.input_norm = UnitBatchNorm(num_networks, input_width, shared_input=True)
        self.embed = UnitLinear(num_networks, input_width, width)
        self.blocks = nn.ModuleList(
            UnitBlock(num_networks, width, expansion) for _ in range(num_blocks)
        )
        self.output_norm = UnitRmsNorm(num_networks, width)

    def forward(self, rows: Tensor, *, batch_stats: bool, keep: slice = slice(None)) -> Tensor:
        """Features of every network for the same rows; of the rows `keep` alone in the end."""
        columns = rows.t().unsqueeze(0)
        num_networks = self.embed.weight.shape[0]
        if batch_stats:
            standard = self.input_norm.standardize(columns).expand(num_networks, -1, -1)
            # Gain and shift go into the product: the M networks share the standardised input.
            gain, shift = self.input_norm.gain_shift.split(1, dim=1)
            offset = torch.bmm(self.embed.weight, shift.transpose(1, 2))
            features = torch.baddbmm(offset, self.embed.weight * gain, standard)
        else:
            factor, shift = self.input_norm.folded()
            weight = self.embed.weight.detach()
            offset = torch.bmm(weight, shift.unsqueeze(-1))
            columns = columns.expand(num_networks, -1, -1)
            features = torch.baddbmm(offset, weight * factor.unsqueeze(1), columns)
        for block in self.blocks:
            features = block(features, batch_stats=batch_stats)
        return self.output_norm(features[..., keep])


def project(network: nn.Module) -> None:
    """Put every parameter of `network` that has a sphere back onto it."""
    for layer in network.modules():
        if isinstance(layer, UnitLinear | UnitBatchNorm | UnitRmsNorm):
            layer.project()


def set_momentum(network: nn.Module, momentum: float) -> None:
    """Share of the batch in the running statistics of every batch normalisation of `network`."""
    for layer in network.modules():
        if isinstance(layer, UnitBatchNorm):
            layer.momentum = momentum


def _product_norm_relu(linear: UnitLinear, norm: UnitBatchNorm, rows: Tensor) -> Tensor:
    """relu(BN(W rows)) under the statistics of the batch."""
    out, mean, var = _ProductNormRelu.apply(rows, linear.weight, norm.gain_shift)
    norm.track(mean, var, rows.shape[-1])
    return out


def _folded_product(linear: UnitLinear, norm: UnitBatchNorm, rows: Tensor) -> Tensor:
    """BN(W rows) under the running statistics as one product."""
    factor, offset = (part.unsqueeze(-1) for part in norm.folded())
    return torch.baddbmm(offset, linear.weight.detach() * factor, rows)


class _ProductNormRelu(torch.autograd.Function):
    """relu(gain (z - mean) / std + shift) of z = W x, in few passes over memory.

    With g the gradient where the output is positive, n rows, c = z - mean and f = gain / std:

        d shift = sum g,   d gain = sum g c / std,   d z = f (g - d shift / n - c d gain / (n std))

    The factor f is applied to the small side of both products instead of to d z.
    """

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, rows: Tensor, weight: Tensor, gain_shift: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        centred = torch.bmm(weight, rows).float()
        mean = centred.mean(dim=-1, keepdim=True)
        centred.sub_(mean)
        num_rows = rows.shape[-1]
        var = torch.linalg.vector_norm(centred, dim=-1, keepdim=True).square_().div_(num_rows)
        inverse = (var + BATCH_NORM_EPS).rsqrt_()
        gain, shift = gain_shift.unsqueeze(-1).unbind(dim=1)
        factor = gain * inverse
        # Not addcmul: with broadcast factors it takes three times as long on a CPU.
        out = (centred * factor).add_(shift).relu_()
        ctx.save_for_backward(rows, weight, centred, out, inverse, factor)
        mean, var = mean.squeeze(-1), var.squeeze(-1)
        ctx.mark_non_differentiable(mean, var)
        return out, mean, var

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad: Tensor, *_unused: Tensor
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        rows, weight, centred, out, inverse, factor = ctx.saved_tensors  # pyright: ignore
        grad = torch.ops.aten.threshold_backward(grad, out, 0)
        grad_shift = grad.sum(dim=-1, keepdim=True)
        grad_gain = (grad * centred).sum(dim=-1, keepdim=True).mul_(inverse)
        num_rows = grad.shape[-1]
        inner = (centred * (grad_gain * inverse / -num_rows)).add_(grad)
        inner.sub_(grad_shift / num_rows)
        grad_weight = torch.bmm(inner, rows.transpose(1, 2).to(inner.dtype)).mul_(factor)
        grad_rows = torch.bmm((weight * factor).transpose(1, 2), inner)
        grad_pair = torch.cat((grad_gain, grad_shift), dim=-1).transpose(1, 2)
        return grad_rows, grad_weight, grad_pair
