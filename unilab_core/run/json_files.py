"""JSON files that a reader never sees half-written."""

import json
import math
from pathlib import Path
from typing import Any

from unilab_core.run.whole_file import whole_file

MAX_READ_BYTES = 64 * 1024 * 1024


def write_json_atomic(path: Path, data: object) -> None:
    """Write all of it or nothing; values that are not finite become null.

    Raises:
        OSError: the file cannot be written.
        TypeError, ValueError: JSON has no word for something in it.
    """
    text = json.dumps(finite(data), allow_nan=False)
    with whole_file(path, 0o644) as file:
        file.write(text.encode() + b"\n")


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
