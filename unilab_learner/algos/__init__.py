"""One file per algorithm, no framework inside: sac, flash_sac, appo; ppo assembles rsl-rl-lib's."""
