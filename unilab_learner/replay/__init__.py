"""Replay: buffer (time-major ring of transitions, n-step), mirror (left/right symmetry)."""
