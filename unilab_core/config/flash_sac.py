"""The `algo` section of FlashSAC.

Every number comes from conf/flashsac/config.yaml and the layers above it (see algo.py).
"""

from dataclasses import dataclass
from typing import Literal

from unilab_core.config.algo import OffPolicyConfig, require


@dataclass(kw_only=True, slots=True, frozen=True)
class FlashSacConfig(OffPolicyConfig):
    """SAC on unit-norm networks with joint batch statistics and categorical critics.

    All learning rates fall along a half cosine. The value distribution is that of normalised
    rewards, and observations need no normaliser: the networks begin with a batch normalisation.
    """

    algo: Literal["flashsac"]
    preset: Literal["default", "gym"]
    """`default`: many parallel environments; `gym`: sizes and rhythm for one small environment."""
    actor_hidden_dim: int
    """Width of the actor."""
    critic_hidden_dim: int
    """Width of each of the two critics."""
    num_blocks: int
    """Residual blocks of actor and critics."""
    block_expansion: int = 4
    """Inner width of a block, in multiples of its outer width."""
    bn_momentum: float = 0.01
    """Share of each batch in the running statistics that acting and the actor's critics use."""
    noise_zeta_mu: float
    """Exploration noise is held for k steps with probability proportional to k to minus this."""
    noise_max_repeat: int
    """Longest hold, in steps; 1 draws new noise at every step."""
    normalize_reward: bool
    """Divide rewards by the spread of the discounted return, with the newest figures, when rows
    are sampled."""
    normalized_g_max: float
    """Largest discounted return that normalised rewards may add up to."""
    temp_target_sigma: float
    """Standard deviation, of actions in [-1, 1], whose entropy the temperature aims for."""
    actor_starts: int = 0
    """Updates of the critics before the first one of the actor: fresh critics are random functions,
    and an actor that follows them saturates its actions before they mean anything."""
    policy_before_critic: bool = True
    """Order of the two steps inside an update."""

    def __post_init__(self) -> None:
        """Limits of FlashSAC's own keys."""
        OffPolicyConfig.__post_init__(self)
        for name in ("actor_hidden_dim", "critic_hidden_dim", "num_blocks", "block_expansion",
                     "noise_max_repeat"):  # fmt: skip
            require(getattr(self, name) >= 1, name, getattr(self, name), "an integer >= 1")
        require(self.num_atoms >= 2, "num_atoms", self.num_atoms, "an integer >= 2")
        # One row has no spread: a batch normalisation would answer zeros.
        require(self.batch_size >= 2, "batch_size", self.batch_size, "an integer >= 2")
        require(self.actor_starts >= 0, "actor_starts", self.actor_starts, "an integer >= 0")
        got = self.bn_momentum
        require(0.0 < got <= 1.0, "bn_momentum", got, "a number in (0, 1]")
        for name in ("noise_zeta_mu", "normalized_g_max", "temp_target_sigma"):
            require(getattr(self, name) > 0.0, name, getattr(self, name), "a number > 0")
