"""Files of tensors that are whole or refused: used by `policy.pt` and by the checkpoints.

A file is an ordinary `torch.save` archive followed by a trailer

    magic (16 bytes) | payload length (8 bytes, little endian) | SHA-256 of the payload (32 bytes)

`torch.load` still opens it, because zip readers look for their directory from the end; ours checks
the digest first, since torch itself returns wrong numbers from an archive with a flipped bit.
Writing goes to a temporary file in the same directory, then fsync, rename, fsync of the directory:
whatever is interrupted, a reader finds the old file or the complete new one.
"""

import hashlib
import io
import os
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from unilab_core.run.whole_file import whole_file

MAGIC = b"unilab-sha256\x00\x00\x01"
_LENGTH_BYTES = 8
_DIGEST_BYTES = hashlib.sha256().digest_size
TRAILER_BYTES = len(MAGIC) + _LENGTH_BYTES + _DIGEST_BYTES
# What torch.load raises for intact bytes that hold something else than tensors and plain values.
_LOAD_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
    struct.error,
)


class DamagedFileError(ValueError):
    """The bytes are not those that were written, or were never written by this project."""


def write_torch_file(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` (tensors and plain values) to `path` atomically and durably."""
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)
    payload = buffer.getbuffer()
    with whole_file(path) as file:
        file.write(payload)
        file.write(MAGIC)
        file.write(len(payload).to_bytes(_LENGTH_BYTES, "little"))
        file.write(hashlib.sha256(payload).digest())
    fsync_directory(path.parent)


def read_torch_file(path: Path) -> dict[str, Any]:
    """Read a file written by `write_torch_file`; no code from the file is executed."""
    raw = path.read_bytes()
    trailer = raw[-TRAILER_BYTES:]
    if len(raw) <= TRAILER_BYTES or not trailer.startswith(MAGIC):
        raise DamagedFileError(f"{path}: truncated, or not a file of this project")
    payload = memoryview(raw)[:-TRAILER_BYTES]
    length = int.from_bytes(trailer[len(MAGIC) : len(MAGIC) + _LENGTH_BYTES], "little")
    if length != len(payload):
        raise DamagedFileError(f"{path}: {len(payload)} bytes of payload, expected {length}")
    if hashlib.sha256(payload).digest() != trailer[-_DIGEST_BYTES:]:
        raise DamagedFileError(f"{path}: checksum mismatch")
    try:
        content = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except _LOAD_ERRORS as error:
        detail = (str(error).splitlines() or [type(error).__name__])[0]
        raise DamagedFileError(f"{path}: not loadable ({detail})") from error
    if not isinstance(content, dict):
        raise DamagedFileError(f"{path}: holds {type(content).__name__}, expected a mapping")
    return content


def fsync_directory(path: Path) -> None:
    """Make a rename or unlink inside `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
