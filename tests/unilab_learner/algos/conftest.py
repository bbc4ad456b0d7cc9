"""Makes ppo_rig importable (pytest runs with --import-mode=importlib)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _two_threads_for_small_networks_too(monkeypatch):
    monkeypatch.setattr("unilab_learner.algos.side_by_side_ppo.MIN_PRODUCTS", 0)
