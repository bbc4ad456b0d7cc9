"""Fixtures of the security tests: a registry of the test's own, a folder that others can enter, a
launcher with fake children."""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

# With importlib mode a test module does not see its neighbours.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "unilab_core" / "launch"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unilab_monitor"))

from launch_rig import launch  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def registry(tmp_path, monkeypatch):
    path = tmp_path / "registry"
    monkeypatch.setenv("UNILAB_RUNTIME_DIR", str(path))
    return path


@pytest.fixture
def public_dir():
    """A directory that another user may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
