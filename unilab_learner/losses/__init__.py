"""Shared maths of the algorithms.

categorical.py     C51 distributions
gae.py             generalised advantages
vtrace.py          off-policy value targets and advantages
reward_scaler.py   rewards over the spread of returns
polyak.py          target networks
guarded_adam.py    optimiser steps that refuse what is not finite
"""
