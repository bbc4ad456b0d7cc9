"""Declared settings that this version or this machine cannot honour, each with its reason.

A key of the configuration either works or says at start why it cannot; nothing is silently ignored.
The names are the public ones, declared now so that a command line written for them gets a reason
instead of "unknown key".
"""

import dataclasses

from unilab_core.config.config import Config
from unilab_core.config.strict import to_plain
from unilab_core.config.training import TrainingConfig
from unilab_core.run.packages import is_installed

_LATER = "not part of this version yet"
_NO_WANDB = "the package wandb is not installed: pip install 'unilab-rl[wandb]'"

# Keys without an effect so far: any other value than the default is refused with this reason.
INERT_TRAINING = {
    "cuda_process_sharing": f"CUDA MPS is {_LATER}",
}


def unsupported_settings(config: Config, *, has_gpu: bool) -> list[str]:
    """One line per setting that cannot work; empty means the run may start."""
    training = config.training
    reasons = _changed("training", training, _defaults(TrainingConfig), INERT_TRAINING)
    if training.logger != "wandb":
        reasons += _changed("training", training, _defaults(TrainingConfig), _wandb_keys(training))
    elif not is_installed("wandb"):
        reasons.append(f"training.logger=wandb: {_NO_WANDB}")
    if training.use_compile is True:
        reasons.append(f"training.use_compile=true: {_LATER}; use auto or false")
    if training.device.startswith("cuda") and not has_gpu:
        reasons.append(
            f"training.device={training.device}: no NVIDIA device is visible; use auto or cpu"
        )
    return reasons


def _wandb_keys(training: TrainingConfig) -> dict[str, str]:
    reason = f"has no effect with training.logger={training.logger}; add training.logger=wandb"
    return {
        field.name: reason
        for field in dataclasses.fields(TrainingConfig)
        if field.name.startswith("wandb_")
    }


def _changed(
    path: str, section: object, defaults: dict[str, object], inert: dict[str, str]
) -> list[str]:
    values = to_plain(section)
    return [
        f"{path}.{name}={_as_typed(values[name])}: {reason}"
        for name, reason in inert.items()
        if values[name] != defaults[name]
    ]


def _defaults(cls: type) -> dict[str, object]:
    return {field.name: to_plain(field.default) for field in dataclasses.fields(cls)}


def _as_typed(value: object) -> str:
    """A value as one would write it on the command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value).replace("'", "").replace(" ", "")
