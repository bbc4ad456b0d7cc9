"""The collector process: owns the environments, steps them, writes experience.

- ``__main__``: start-up (environment once, ``env_spec.json``, attach) and the way out
- ``slot_loop``: the vector tick over the inference slot (PPO, SAC, FlashSAC)
- ``replay_feed``: transitions into the bounded replay ingress
- ``episode_stats``: returns, lengths, time-outs and reward terms for the reports
- ``tick_report``: phase times of the cycle and the record that monitors and learner read
"""
