"""JSON files that a reader never sees half-written."""

import contextlib
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

MAX_READ_BYTES = 64 * 1024 * 1024


def write_json_atomic(path: Path, data: object) -> None:
    """Write beside `path` and rename into place; values that are not finite become null."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(finite(data), file, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in the file; None when there is no readable, valid object."""
    try:
        if path.stat().st_size > MAX_READ_BYTES:
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def finite(value: object) -> Any:  # noqa: ANN401 - JSON-like
    """The same data with NaN and infinities as null, as JSON has no word for them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
