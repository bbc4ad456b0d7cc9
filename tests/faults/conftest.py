"""A launcher per test, audited at its end: no process, no shared name, no live job is left."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unilab_core" / "launch"))

from launch_rig import Launch, registry_run_ids


@pytest.fixture
def launch(tmp_path):
    launch = Launch(tmp_path)
    before = set(os.listdir("/dev/shm"))
    yield launch
    launch.audit()
    left = [n for n in set(os.listdir("/dev/shm")) - before if n.startswith("ul-")]
    mine = [n for n in left if n[3:11] in registry_run_ids(launch.registry)]
    assert mine == []
    assert not list(tmp_path.rglob("*.tmp"))
