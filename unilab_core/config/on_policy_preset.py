"""What the presets of PPO and APPO change beyond the keys of the configuration.

`gym` is the set of implementation details that small continuous-control tasks are known to need:
orthogonal weights (sqrt 2 hidden, 0.01 policy head, 1 value head), a smaller epsilon in Adam,
advantages normalised per minibatch, observations clipped after normalisation, and rewards divided
by the running standard deviation of the discounted return.
"""

from dataclasses import dataclass


@dataclass(kw_only=True, slots=True, frozen=True)
class OnPolicyPreset:
    """One preset."""

    orthogonal_init: bool
    policy_head_gain: float
    value_head_gain: float
    adam_eps: float
    advantages_per_minibatch: bool
    obs_clip: float
    """Normalised observations are clipped to this; 0 leaves them alone."""
    scale_rewards: bool
    reward_clip: float
    """Scaled rewards are clipped to this."""


PRESETS = {
    "default": OnPolicyPreset(
        orthogonal_init=False,
        policy_head_gain=1.0,
        value_head_gain=1.0,
        adam_eps=1e-8,
        advantages_per_minibatch=False,
        obs_clip=0.0,
        scale_rewards=False,
        reward_clip=0.0,
    ),
    "gym": OnPolicyPreset(
        orthogonal_init=True,
        policy_head_gain=0.01,
        value_head_gain=1.0,
        adam_eps=1e-5,
        advantages_per_minibatch=True,
        obs_clip=10.0,
        scale_rewards=True,
        reward_clip=10.0,
    ),
}
