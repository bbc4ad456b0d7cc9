"""Stands in for the learner in the launcher's tests."""
