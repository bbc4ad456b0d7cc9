"""Stands in for the collector in the launcher's tests."""
