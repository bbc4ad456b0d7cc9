"""What the learner really runs with, beside what was asked for: its share of the manifest."""

import os
from typing import Any

import torch

from unilab_core.config.config import Config
from unilab_learner.device import CPU_BF16_FLAGS


def learner_facts(config: Config, device: torch.device, *, use_amp: bool) -> dict[str, Any]:
    """Settings (requested, effective, reason for a difference), threads and seeds."""
    return {
        "pid": os.getpid(),
        "settings": effective_settings(config, device, use_amp=use_amp),
        "threads": {
            "torch_num_threads": torch.get_num_threads(),
            "torch_num_interop_threads": torch.get_num_interop_threads(),
            "requested": config.training.torch_threads.learner_num_threads,
            "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        },
        "seeds": {"torch": config.algo.seed},
    }


def effective_settings(
    config: Config, device: torch.device, *, use_amp: bool
) -> dict[str, dict[str, Any]]:
    """Per setting what was asked for, what is in force, and why it differs (None: it does not)."""
    training = config.training
    has_cuda = torch.cuda.is_available()
    return {
        "device": _setting(
            training.device, str(device), "a CUDA device is there" if has_cuda else "no CUDA device"
        ),
        "use_amp": _setting(training.use_amp, use_amp, _amp_reason(device, use_amp=use_amp)),
        "use_compile": _setting(training.use_compile, False, "torch.compile is not used yet"),
        "cuda_graph": _setting(False, False, ""),
        "cuda_process_sharing": _setting(training.cuda_process_sharing, None, "not used yet"),
    }


def _amp_reason(device: torch.device, *, use_amp: bool) -> str:
    if device.type == "cpu":
        names = ", ".join(sorted(CPU_BF16_FLAGS))
        return f"the CPU has {'one' if use_amp else 'none'} of {names}"
    return f"{device.type} {'has' if use_amp else 'has no'} native bf16"


def _setting(requested: object, effective: object, reason: str) -> dict[str, Any]:
    same = requested == effective
    return {
        "requested": requested,
        "effective": effective,
        "reason": None if same else reason,
    }
