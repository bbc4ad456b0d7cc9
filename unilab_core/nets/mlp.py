"""Multi-layer perceptrons: Linear -> [LayerNorm] -> activation per hidden layer, linear head.

Legend: B batch rows, I input width, H hidden width, Y output width.
"""

from collections.abc import Callable, Sequence

from torch import nn

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "silu": nn.SiLU,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
}


def build_mlp(
    input_width: int,
    hidden_dims: Sequence[int],
    output_width: int,
    *,
    activation: str,
    layer_norm: bool,
    zero_head: bool,
) -> nn.Sequential:
    """Build [B, I] -> [B, Y].

    `zero_head` starts the output at exactly 0 whatever the input: a fresh critic then predicts
    nothing and a fresh actor has no preference, instead of the noise of a random last layer.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation: got {activation!r}, expected one of {sorted(ACTIVATIONS)}")
    layers: list[nn.Module] = []
    width = input_width
    for hidden in hidden_dims:
        layers.append(nn.Linear(width, hidden))
        if layer_norm:
            layers.append(nn.LayerNorm(hidden))
        layers.append(ACTIVATIONS[activation]())
        width = hidden
    head = nn.Linear(width, output_width)
    if zero_head:
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
    layers.append(head)
    return nn.Sequential(*layers)
