"""Shared maths of the algorithms.

categorical.py     C51 distributions
gae.py             generalised advantages
vtrace.py          off-policy value targets and advantages
reward_scaler.py   rewards over the spread of returns
reward_normalizer.py   rewards over the spread and reach of returns, when sampled
polyak.py          target networks
guarded_adam.py    optimiser steps that refuse what is not finite
"""
