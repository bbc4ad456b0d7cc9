"""Binary files that a reader never sees half-written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write beside `path`; at the end of the block synced and renamed into place.

    Whatever goes wrong before leaves the old file, and nothing beside it.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with partial.open("wb") as file:
            yield file
            _sync(file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _sync(file: BinaryIO) -> None:
    """Everything written so far is on the disk."""
    file.flush()
    os.fsync(file.fileno())
