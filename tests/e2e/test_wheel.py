"""A wheel built from the tree runs outside the repository, configuration included."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_wheel_carries_code_and_configuration(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir"]
    done = subprocess.run(
        [*build, str(tmp_path), str(ROOT)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(site)
    assert "unilab_core/conf/sac/config.yaml" in names
    assert any(name.endswith("go2.xml") for name in names)
    assert not any(name.startswith("tests/") for name in names)
    outside = tmp_path / "outside"
    outside.mkdir()
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "import unilab_core.config.compose as c, unilab_core.tasks.registry as t\n"
        f"assert c.__file__.startswith({str(site)!r}), c.__file__\n"
        "config = c.compose('sac', 'go2_joystick_flat', 'mujoco', ['algo.num_envs=4'])\n"
        "from unilab_core.envs import make_env\n"
        "env = make_env('go2_joystick_flat', 'mujoco', config.env, num_envs=4, seed=1,"
        " num_threads=1)\n"
        "env.reset(); print(env.spec.obs_width)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=outside, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "49"
