"""`policy.onnx`: the same function as `policy.pt`, for runtimes without torch.

    input   obs      [batch, O] float32, as the environment gives them (the normaliser is inside)
    output  actions  [batch, A] float32, the most likely action

The contract of the policy file (task, widths, observation terms, ...) is in the model's metadata
under `unilab`, as JSON. Every file is compared with torch on random observations before it gets its
name: by onnxruntime where that is installed, else by onnx's own reference evaluator.

Needs the extra `onnx`. Any policy that `policy_file` can load can be exported.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from unilab_core.nets.policy_file import Policy
from unilab_core.nets.torch_file import fsync_directory
from unilab_core.run.packages import is_installed
from unilab_core.run.whole_file import whole_file

INSTALL = "pip install 'unilab-rl[onnx]'"
OPSET = 17
"""Understood by every runtime of the last years, LayerNorm included."""
TOLERANCE = 1e-4
"""Largest deviation, absolute plus relative: float32 sums in another order."""
CHECK_SEED = 20_240
METADATA_KEY = "unilab"

Rows = NDArray[np.float32]
Evaluator = Callable[[Rows], Rows]


class OnnxUnavailableError(RuntimeError):
    """The packages are missing; the message says how to install them."""


class OnnxExportError(RuntimeError):
    """The policy could not be exported, or the export computes something else."""


def export_onnx(policy: Policy, path: Path) -> float:
    """Write the policy to `path`; the largest deviation from torch that was seen.

    Raises:
        OnnxUnavailableError: the extra is not installed.
        OnnxExportError: torch cannot express the policy, or the numbers differ.
        OSError: the file cannot be written.
    """
    if not is_installed("onnx"):
        raise OnnxUnavailableError(f"policy.onnx needs the package onnx: {INSTALL}")
    model = _with_contract(_export(policy), policy)
    deviation = _compare(policy, _evaluator(model))
    _write(path, model)
    return deviation


def _export(policy: Policy) -> bytes:
    """Trace the policy.

    The tracing exporter takes a tenth of a second and needs nothing but onnx; the newer one takes
    ten and a second package, for the same dozen nodes.
    """
    buffer = io.BytesIO()
    rows = torch.zeros(2, policy.contract["obs_width"])
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                policy.module,
                (rows,),
                buffer,  # pyright: ignore[reportArgumentType] - a file object is one, at run time
                dynamo=False,
                opset_version=OPSET,
                input_names=["obs"],
                output_names=["actions"],
                dynamic_axes={"obs": {0: "batch"}, "actions": {0: "batch"}},
            )
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        detail = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise OnnxExportError(f"torch cannot export this policy: {detail}") from error
    finally:
        quiet.setLevel(level)
    return buffer.getvalue()


def _with_contract(model_bytes: bytes, policy: Policy) -> bytes:
    import onnx

    model = onnx.load_model_from_string(model_bytes)
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, json.dumps(policy.contract)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _evaluator(model: bytes) -> Evaluator:
    """Somebody else's opinion on what the file computes."""
    if is_installed("onnxruntime"):
        import onnxruntime  # pyright: ignore[reportMissingImports] - an extra

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return lambda rows: np.asarray(session.run(None, {"obs": rows})[0], np.float32)
    from onnx.reference import ReferenceEvaluator

    reference = ReferenceEvaluator(model)

    def evaluate(rows: Rows) -> Rows:
        (actions,) = reference.run(None, {"obs": rows})
        return np.asarray(actions, np.float32)

    return evaluate


def _compare(policy: Policy, evaluate: Evaluator) -> float:
    """Batches of several sizes, observations small and large."""
    rng = np.random.default_rng(CHECK_SEED)
    worst = 0.0
    for num_rows, spread in ((1, 1.0), (5, 0.1), (64, 1.0), (64, 10.0)):
        rows = rng.normal(0.0, spread, (num_rows, policy.contract["obs_width"])).astype(np.float32)
        expected, got = policy.act(rows), evaluate(rows)
        if got.shape != expected.shape:
            raise OnnxExportError(f"policy.onnx answers {got.shape}, torch {expected.shape}")
        deviation = np.abs(got - expected)
        if not bool((deviation <= TOLERANCE * (1.0 + np.abs(expected))).all()):
            raise OnnxExportError(
                f"policy.onnx differs from torch by {float(np.nanmax(deviation)):.2g},"
                f" allowed are {TOLERANCE:g}"
            )
        worst = max(worst, float(deviation.max()))
    return worst


def _write(path: Path, model: bytes) -> None:
    """A reader finds the old file or the complete new one."""
    with whole_file(path) as file:
        file.write(model)
    fsync_directory(path.parent)
