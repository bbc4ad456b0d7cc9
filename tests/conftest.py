"""Fixtures of more than one folder."""

import os
from collections.abc import Iterator

import pytest

from unilab_ipc.names import new_run_id, parse_segment_name


@pytest.fixture
def run_id() -> Iterator[str]:
    """A fresh run id; everything of that run is removed from /dev/shm afterwards."""
    run_id = new_run_id()
    yield run_id
    for name in os.listdir("/dev/shm"):
        parsed = parse_segment_name(name)
        if parsed is not None and parsed.run_id == run_id:
            os.unlink(f"/dev/shm/{name}")
