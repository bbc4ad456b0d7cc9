"""Which class holds the `algo` section of which algorithm."""

from unilab_core.config.algo import AlgoConfig, SacConfig
from unilab_core.config.flash_sac import FlashSacConfig
from unilab_core.config.on_policy import AppoConfig, PpoConfig

ALGO_CONFIGS: dict[str, type[AlgoConfig]] = {
    "sac": SacConfig,
    "ppo": PpoConfig,
    "appo": AppoConfig,
    "flashsac": FlashSacConfig,
}
"""Section class of each algorithm that this version can train."""
