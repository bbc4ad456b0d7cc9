"""The launcher's fixture for the tests of this folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unilab_core" / "launch"))

from launch_rig import launch  # noqa: F401 - a fixture
