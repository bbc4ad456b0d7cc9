"""Checkpoints of a run: everything that changes what happens next, whole or refused.

    checkpoints/checkpoint_00000400.pt    the two newest
    checkpoints/best.pt                   the one with the highest mean return so far

A file is written beside its final name, synced and renamed (`nets.torch_file`), so an interrupted
save leaves the previous files as they were. A failed save raises OSError and changes nothing: the
loop counts it and tries again at the next interval. Loading the newest goes from the newest to the
oldest and then to the best until one is whole and belongs to this run; each one passed over is
named with the reason. A file that was asked for by name is taken or refused, never exchanged.
Owned by the learner of rank 0.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from unilab_core.nets.torch_file import (
    DamagedFileError,
    fsync_directory,
    read_torch_file,
    write_torch_file,
)
from unilab_core.run.failures import CheckpointError, NonFiniteError

FORMAT = "unilab-checkpoint"
VERSION = 1
KEEP_NEWEST = 2
BEST_NAME = "best.pt"
NEWEST = -1

log = logging.getLogger(__name__)


class CheckpointStore:
    """The checkpoint folder of one run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._best_return: float | None = None
        self.skipped: list[str] = []
        """Why the last `load` passed over newer files, one line each."""

    @property
    def best_return(self) -> float | None:
        """Mean return of `best.pt`; None while there is none."""
        return self._best_return

    def save(
        self, content: Mapping[str, Any], *, iteration: int, mean_return: float | None
    ) -> Path:
        """Write one checkpoint and forget those that are no longer kept.

        Args:
            content: tensors and plain values, nested.
            iteration: names the file.
            mean_return: decides which one is the best; None never is.

        Raises:
            NonFiniteError: a floating-point tensor holds NaN or infinity; nothing was written.
            OSError: the disk is full or gone; the files of before are still there.
        """
        require_finite(content)
        path = self._folder / f"checkpoint_{iteration:08d}.pt"
        best = self._best_return
        is_best = mean_return is not None and (best is None or mean_return >= best)
        header = {
            "format": FORMAT,
            "version": VERSION,
            "iteration": iteration,
            "mean_return": mean_return,
        }
        write_torch_file(path, {**header, **content})
        if is_best:
            self._replace_best(path)
            self._best_return = mean_return
        for old in self._newest_first()[KEEP_NEWEST:]:
            old.unlink(missing_ok=True)
        return path

    def load(
        self, selector: int | str, accept: Callable[[Mapping[str, Any]], None] = lambda _: None
    ) -> dict[str, Any]:
        """Read a checkpoint.

        Args:
            selector: -1 (the newest that is whole and accepted), an iteration, or a file name.
            accept: raises CheckpointError for a whole checkpoint that is of no use here.

        Raises:
            CheckpointError: there is none, or the one asked for is damaged or foreign.
        """
        self.skipped = []
        if selector == NEWEST:
            return self._load_newest(accept)
        name = f"checkpoint_{selector:08d}.pt" if isinstance(selector, int) else selector
        if Path(name).name != name:
            raise CheckpointError(f"checkpoint: got {name!r}, expected a file name")
        return self._read(self._folder / name, accept)

    def _load_newest(self, accept: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
        best = self._folder / BEST_NAME
        paths = [*self._newest_first(), *([best] if best.is_file() else [])]
        if not paths:
            raise CheckpointError(f"{self._folder}: holds no checkpoint")
        for path in paths:
            try:
                return self._read(path, accept)
            except CheckpointError as error:
                self.skipped.append(f"skipped {path.name}: {_without(error, path)}")
                log.warning("skipped a checkpoint: %s", error)
        reasons = "; ".join(self.skipped)
        raise CheckpointError(f"{self._folder}: none of {len(paths)} can be used: {reasons}")

    def _read(self, path: Path, accept: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
        try:
            content = read_torch_file(path)
        except FileNotFoundError:
            raise CheckpointError(f"{path}: no such checkpoint") from None
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
        except DamagedFileError as error:
            raise CheckpointError(str(error)) from error
        if content.get("format") != FORMAT:
            raise CheckpointError(f"{path}: not a checkpoint of this project")
        if content.get("version") != VERSION:
            raise CheckpointError(f"{path}: version {content.get('version')}, expected {VERSION}")
        accept(content)
        log.info("loaded %s", path)
        return content

    def _newest_first(self) -> list[Path]:
        # Zero-padded names sort by iteration.
        return sorted(self._folder.glob("checkpoint_*.pt"), reverse=True)

    def _replace_best(self, path: Path) -> None:
        """Point `best.pt` at the same bytes; a hard link costs no space and no second write."""
        partial = self._folder / f".{BEST_NAME}.{os.getpid()}.tmp"
        partial.unlink(missing_ok=True)
        try:
            os.link(path, partial)
        except OSError:  # a file system without hard links
            partial.write_bytes(path.read_bytes())
        partial.replace(self._folder / BEST_NAME)
        fsync_directory(self._folder)


def require_finite(content: Mapping[str, Any]) -> None:
    """Refuse NaN and infinity anywhere in nested tensors; names the place."""
    for name, tensor in _tensors(content, ""):
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise NonFiniteError(source=f"weights ({name})")


def _without(error: Exception, path: Path) -> str:
    """The reason alone, where the message starts with the path."""
    return str(error).removeprefix(f"{path}: ")


def require_same(what: str, got: object, expected: object) -> None:
    """A checkpoint of something else is an error that says what differs."""
    if got != expected:
        raise CheckpointError(f"checkpoint {what}: got {got!r}, expected {expected!r}")


def _tensors(value: object, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _tensors(item, f"{name}[{index}]")
