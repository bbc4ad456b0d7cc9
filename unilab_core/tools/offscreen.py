"""Offscreen OpenGL: which way this machine has, decided before mujoco is imported.

mujoco reads MUJOCO_GL once, at import. So the question is answered by short-lived child processes,
and the answer goes into the environment.
"""

import os
import subprocess
import sys

CANDIDATES = ("egl", "osmesa")
_PROBE = "import mujoco; context = mujoco.GLContext(16, 16); context.make_current(); context.free()"
_PROBE_TIMEOUT_S = 60.0


class OffscreenUnavailableError(RuntimeError):
    """No way to render; the message names the packages that would add one."""


def prepare_offscreen() -> str:
    """Set MUJOCO_GL to a working way of rendering without a display, and return it.

    A value that the user has set is kept. Call it before anything imports mujoco.
    """
    chosen = os.environ.get("MUJOCO_GL", "")
    if not chosen:
        chosen = next((name for name in CANDIDATES if _works(name)), "")
        if not chosen:
            raise OffscreenUnavailableError(
                "video: this machine can render neither through EGL nor through OSMesa; "
                "install the Debian package libosmesa6 (software) or libegl1 (GPU driver)"
            )
        os.environ["MUJOCO_GL"] = chosen
    return chosen


def _works(name: str) -> bool:
    """Whether a context can really be made; libraries alone prove nothing."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env={**os.environ, "MUJOCO_GL": name},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
