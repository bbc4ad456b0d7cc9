"""Networks (torch).

mlp.py                 hidden layers and head
squashed_gaussian.py   SAC's actor
gaussian.py            policy and value function of PPO and APPO, flat weights
policy_spec.py         that policy's shape from the configuration
rsl_rl_weights.py      weights of rsl-rl-lib's actor in that policy
unit_norm.py           layers of FlashSAC: unit rows, joint batch statistics
unit_networks.py       its actor and critics
critics.py             ensemble of state-action values
normalizer.py          running observation statistics
policy_file.py         policy.pt
torch_file.py          tensor files that are whole or refused
"""
