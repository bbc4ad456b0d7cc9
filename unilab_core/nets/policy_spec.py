"""The policy's shape from the configuration: learner and collector build the same network."""

from unilab_core.config.on_policy import OnPolicyConfig
from unilab_core.config.on_policy_preset import PRESETS
from unilab_core.nets.gaussian import GaussianSpec


def policy_spec(cfg: OnPolicyConfig, *, obs_width: int, action_width: int) -> GaussianSpec:
    """Spec of the Gaussian policy of PPO and APPO."""
    return GaussianSpec(
        obs_width=obs_width,
        action_width=action_width,
        hidden_dims=cfg.hidden_dims,
        activation=cfg.activation,
        obs_normalization=cfg.obs_normalization,
        obs_clip=PRESETS[cfg.preset].obs_clip,
    )
