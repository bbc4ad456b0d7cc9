"""Weights of an rsl-rl-lib actor (an MLPModel's state dict) as those of our GaussianPolicy.

    mlp.<i>.weight, .bias        net.<i>.weight, .bias      both alternate Linear and activation
    distribution.log_std_param   log_std
    obs_normalizer._mean, _var   normalizer.mean, .var
    obs_normalizer.count         normalizer.count

Needs torch alone: `unilab-eval` reads PPO checkpoints without rsl-rl-lib.
"""

from collections.abc import Mapping

from torch import Tensor


def gaussian_weights(actor: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State dict for `GaussianPolicy.load_state_dict`."""
    weights: dict[str, Tensor] = {
        f"net.{name.removeprefix('mlp.')}": tensor
        for name, tensor in actor.items()
        if name.startswith("mlp.")
    }
    weights["log_std"] = actor["distribution.log_std_param"]
    if "obs_normalizer._mean" in actor:
        weights["normalizer.mean"] = actor["obs_normalizer._mean"].squeeze(0).double()
        weights["normalizer.var"] = actor["obs_normalizer._var"].squeeze(0).double()
        weights["normalizer.count"] = actor["obs_normalizer.count"].double()
    return weights
