"""One file per algorithm, no framework inside: sac, appo; ppo assembles rsl-rl-lib's."""
