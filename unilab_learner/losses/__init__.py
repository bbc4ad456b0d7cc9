"""Shared maths of the algorithms: categorical (C51), polyak (target networks), guarded_step."""
