"""The `hardware` section, and which profile `auto` means on this machine (no torch involved)."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PROFILES = ("cpu", "gpu")


@dataclass(kw_only=True, slots=True, frozen=True)
class HardwareConfig:
    """What the settings are sized for."""

    profile: Literal["cpu", "gpu"]
    """Sizes of networks, environments, update ratio and threads. `auto` on the command line becomes
    one of the two before anything else is composed."""


def detect_profile(environ: Mapping[str, str], root: Path = Path("/")) -> Literal["cpu", "gpu"]:
    """`gpu` where an NVIDIA device is visible to this process, else `cpu`."""
    if environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return "cpu"
    if any((root / "dev").glob("nvidia[0-9]*")):
        return "gpu"
    # Under WSL the devices have no nodes; the driver's tool beside /dev/dxg tells them apart.
    has_tool = shutil.which("nvidia-smi", path=environ.get("PATH", os.defpath)) is not None
    return "gpu" if (root / "dev/dxg").exists() and has_tool else "cpu"
