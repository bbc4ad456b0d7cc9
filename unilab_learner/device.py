"""Where the learner computes, and whether bf16 autocast is worth it there."""

from pathlib import Path
from typing import Literal

import torch

from unilab_core.run.machine import cpu_flags

CPU_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
"""Instruction sets with native bf16 products; without one, autocast only adds conversions."""


def resolve_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU; MPS only on request.

    Raises:
        ValueError: the device asked for is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"training.device: got {name!r}, but torch sees no CUDA device")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"training.device: got {name!r}, but torch has no MPS here")
    return device


def resolve_amp(
    use_amp: bool | Literal["auto"], device: torch.device, cpuinfo: Path = Path("/proc/cpuinfo")
) -> bool:
    """Whether updates run under bf16 autocast; `auto` asks the hardware."""
    if use_amp != "auto":
        return use_amp
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and bool(CPU_BF16_FLAGS & cpu_flags(cpuinfo))
