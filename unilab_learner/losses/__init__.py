"""Shared maths of the algorithms.

categorical.py     C51 distributions
gae.py             generalised advantages
vtrace.py          off-policy value targets and advantages
reward_scaler.py   rewards over the spread of returns
polyak.py          target networks
guarded_step.py    an optimiser step that refuses what is not finite
"""
