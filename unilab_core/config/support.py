"""Declared settings that this version or this machine cannot honour, each with its reason.

A key of the configuration either works or says at start why it cannot; nothing is silently ignored.
"""

from unilab_core.config.config import Config

_LATER = "not part of this version yet"


def unsupported_settings(config: Config, *, has_gpu: bool) -> list[str]:
    """One line per setting that cannot work; empty means the run may start."""
    training = config.training
    asked = {
        "training.logger=wandb": (training.logger == "wandb", f"{_LATER}; use tensorboard or none"),
        "training.rl_trace=true": (training.rl_trace, _LATER),
        "training.trace_enabled=true": (training.trace_enabled, _LATER),
        "training.export_onnx=true": (training.export_onnx, f"{_LATER}; policy.pt is written"),
        "training.cuda_process_sharing=mps": (training.cuda_process_sharing == "mps", _LATER),
        f"training.device={training.device}": (
            training.device.startswith("cuda") and not has_gpu,
            "no NVIDIA device is visible; use auto or cpu",
        ),
    }
    return [f"{setting}: {reason}" for setting, (wanted, reason) in asked.items() if wanted]
