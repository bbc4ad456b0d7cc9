"""What a result depends on besides its settings: library versions and the processor.

Read from package metadata and /proc, so that the launcher can say it without loading a library.
"""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

DISTRIBUTIONS = {
    "unilab": "unilab-rl",
    "torch": "torch",
    "numpy": "numpy",
    "mujoco": "mujoco",
    "rsl_rl": "rsl-rl-lib",
    "tensordict": "tensordict",
    "gymnasium": "gymnasium",
    "mujoco_warp": "mujoco-warp",
    "warp": "warp-lang",
    "tensorboardX": "tensorboardX",
    "wandb": "wandb",
    "hydra": "hydra-core",
    "msgpack": "msgpack",
}

VECTOR_FLAG_PREFIXES = ("sse4", "avx", "fma", "f16c", "amx", "asimd", "sve", "bf16", "fphp")
"""Of some 150 flags, those that decide which numeric kernels run (x86-64 and ARM)."""


def cpu_flags(cpuinfo: Path) -> frozenset[str]:
    """Feature flags of the first core; empty where the file does not exist or has none."""
    for name, value in _cpuinfo(cpuinfo):
        if name in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def software_versions() -> dict[str, str | None]:
    """Versions of what takes part in a run; None for what is not installed."""
    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for name, distribution in DISTRIBUTIONS.items():
        try:
            found[name] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def cpu_facts(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """Model, cores, and the vector extensions of the processor."""
    model = next((value for name, value in _cpuinfo(cpuinfo) if name == "model name"), None)
    flags = cpu_flags(cpuinfo)
    return {
        "model": model or platform.machine(),
        "logical_cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "vector_flags": sorted(f for f in flags if f.startswith(VECTOR_FLAG_PREFIXES)),
    }


def _cpuinfo(path: Path) -> list[tuple[str, str]]:
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    pairs = (line.partition(":") for line in text.splitlines())
    return [(name.strip(), value.strip()) for name, _, value in pairs if value]
