"""The dump of the NaN guard: the last steps of the environments in which a value went wrong.

One .npz file without pickled objects. `meta` holds JSON text, the other arrays are, for K steps and
N dumped environments (all rows are "before the step" except reward and ends):

    step [K]          vector steps, ascending; the last one is where the bad value appeared
    env [N]           indices of the environments, the offending ones first
    obs, critic_obs, action    [K, N, width]
    reward, terminated, truncated    [K, N]
    qpos, qvel, ctrl  [K, N, width], where the physics shows its state
    after_<name>      [N, width], the state that the last step led to

Written beside its final name, synced, renamed: a reader finds a whole file or none.
"""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unilab_core.run.whole_file import whole_file

FORMAT = "unilab-nan-dump"
VERSION = 1
META = "meta"
STEP, ENV = "step", "env"
AFTER = "after_"
SCALARS = ("reward", "terminated", "truncated")
"""Fields of [K, N]; all others are [K, N, width]."""
META_KEYS = ("source", "kind", "env", "step", "task", "sim", "env_config", "terms")


class NanDumpError(ValueError):
    """The file is not a whole dump of this version; names it and says why."""


@dataclass(kw_only=True, slots=True, frozen=True)
class NanDump:
    """A dump in memory."""

    meta: dict[str, Any]
    """Who and where: see META_KEYS; `terms` names the observation terms with their widths."""
    steps: NDArray[Any]
    """[K]"""
    envs: NDArray[Any]
    """[N]"""
    fields: dict[str, NDArray[Any]]
    """[K, N] or [K, N, width], by name"""
    after: dict[str, NDArray[Any]]
    """[N, width], by name"""


def write_nan_dump(path: Path, dump: NanDump) -> None:
    """Write the file atomically; OSError leaves nothing behind."""
    meta = {"format": FORMAT, "version": VERSION, **dump.meta}
    arrays: dict[str, NDArray[Any]] = {
        META: np.array(json.dumps(meta)),
        STEP: dump.steps,
        ENV: dump.envs,
        **dump.fields,
        **{AFTER + name: values for name, values in dump.after.items()},
    }
    with whole_file(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_nan_dump(path: Path) -> NanDump:
    """Read and check a dump; no code from the file is executed."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise NanDumpError(f"{path}: not a dump of the NaN guard ({_first_line(error)})") from None
    meta = _meta(path, arrays.pop(META, None))
    steps, envs = arrays.pop(STEP, None), arrays.pop(ENV, None)
    if steps is None or envs is None or steps.ndim != 1 or envs.ndim != 1:
        raise NanDumpError(f"{path}: lacks its steps or environments")
    after = {n.removeprefix(AFTER): arrays.pop(n) for n in list(arrays) if n.startswith(AFTER)}
    _check_shapes(path, arrays, (len(steps), len(envs)))
    _check_shapes(path, after, (len(envs),))
    if not len(steps) or not len(envs) or "obs" not in arrays:
        raise NanDumpError(f"{path}: holds no step")
    return NanDump(meta=meta, steps=steps, envs=envs, fields=arrays, after=after)


def _meta(path: Path, raw: NDArray[Any] | None) -> dict[str, Any]:
    try:
        meta = json.loads(str(raw))
    except ValueError:
        meta = None
    if not isinstance(meta, Mapping) or meta.get("format") != FORMAT:
        raise NanDumpError(f"{path}: not a dump of the NaN guard")
    if meta.get("version") != VERSION:
        raise NanDumpError(f"{path}: version {meta.get('version')}, expected {VERSION}")
    missing = [key for key in META_KEYS if key not in meta]
    if missing:
        raise NanDumpError(f"{path}: lacks {', '.join(missing)}")
    return dict(meta)


def _check_shapes(path: Path, arrays: Mapping[str, NDArray[Any]], head: tuple[int, ...]) -> None:
    for name, values in arrays.items():
        expected_dims = len(head) + (name not in SCALARS)
        if values.shape[: len(head)] != head or values.ndim != expected_dims:
            raise NanDumpError(f"{path}: {name} has shape {values.shape}, expected {head} first")
        if values.dtype.kind not in "fbiu":
            raise NanDumpError(f"{path}: {name} holds {values.dtype}, expected numbers")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
