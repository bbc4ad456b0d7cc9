"""What a monitor keeps over a restart: how far it read progress files, and when lines arrived.

The file is the monitor's own, never in the trace directory:
`$XDG_STATE_HOME/unilab/trace-<digest of the root>.json` (0600 in a 0700 folder). Two monitors of
one directory merge: of two arrival times of a line the earlier one stays.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

VERSION = 1
MAX_ARRIVALS = 50_000
"""Newest lines of a file whose arrival is kept."""
MAX_FILE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileState:
    """What is known about one progress file."""

    inode: int
    pos: int
    arrivals: Mapping[int, int] = field(default_factory=dict)
    """Offset of a line to Unix ms."""


def state_path(root: Path) -> Path:
    """Where the state of a trace directory is kept."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    digest = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    return Path(base) / "unilab" / f"trace-{digest}.json"


def load_state(path: Path) -> dict[str, FileState]:
    """File name to state; empty if there is none or it cannot be read."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return {}
        table = json.loads(path.read_text(encoding="utf-8"))
        if table["version"] != VERSION:
            return {}
        return {
            str(name): FileState(
                int(one["inode"]),
                int(one["pos"]),
                {int(offset): int(ms) for offset, ms in one["arrivals"]},
            )
            for name, one in table["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def save_state(path: Path, files: Mapping[str, FileState]) -> bool:
    """Merge with what is there and replace it in one step; False if the disk refused."""
    merged = dict(load_state(path))
    for name, state in files.items():
        other = merged.get(name)
        arrivals = dict(state.arrivals)
        if other is not None and other.inode == state.inode:
            for offset, ms in other.arrivals.items():
                arrivals[offset] = min(ms, arrivals.get(offset, ms))
        newest = sorted(arrivals.items())[-MAX_ARRIVALS:]
        merged[name] = FileState(state.inode, state.pos, dict(newest))
    table = {
        "version": VERSION,
        "files": {
            name: {"inode": one.inode, "pos": one.pos, "arrivals": sorted(one.arrivals.items())}
            for name, one in merged.items()
        },
    }
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as stream:
            json.dump(table, stream, separators=(",", ":"))
        os.replace(temporary, path)
    except OSError:
        return False
    return True
