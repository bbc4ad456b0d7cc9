"""Configuration: YAML composed by Hydra, then frozen dataclasses (docs/adr explains the two steps).

errors.py      ConfigError and the "nearest name" wording
strict.py      plain dict -> dataclass, with a one-line error that names key, got and expected
algo.py        the `algo` section: what every algorithm has, what off-policy ones have, SAC
flash_sac.py   the `algo` section of FlashSAC
on_policy.py   the `algo` section of PPO and APPO
on_policy_preset.py  what their presets change beyond the keys
algo_registry.py     which class holds which algorithm's section
training.py    the `training` section
env.py         the `env` section
gym_env.py     the `env` section of gym: tasks
hardware.py    the `hardware` section and the detection of a GPU (without torch)
config.py      Config, config_from_dict: all four sections; what children read back
compose.py     compose(): the order of the YAML files and overrides (needs hydra)
overrides.py   KEY=VALUE of the command line, applied last
support.py     declared keys that cannot work yet, each with its reason
"""
