"""The collector process: owns the environments, steps them, writes experience.

- ``__main__``: start-up (environment once, ``env_spec.json``, attach) and the way out
- ``fault_places``: where ``UNILAB_FAULT`` can strike this process
- ``wiring``: each algorithm's loop from the job's segments
- ``slot_loop``: the vector tick over the inference slot (PPO, SAC, FlashSAC)
- ``replay_feed``: transitions into the bounded replay ingress (SAC)
- ``step_feed``: transitions into the slot, with the next request (PPO)
- ``rollout_loop``, ``rollout_feed``: whole rollouts into the rollout ring (APPO)
- ``acting_policy``: the collector's own copy of the policy (APPO)
- ``episode_stats``: returns, lengths, time-outs and reward terms for the reports
- ``tick_report``, ``rollout_report``: times of a tick or a rollout, and the record that monitors
  and learner read
"""
