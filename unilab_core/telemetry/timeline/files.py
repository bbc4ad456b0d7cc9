"""Names of the timeline's files, and how the parts of the roles become one file.

    <folder>/<run id>.collector-0.pftrace      while the run lasts, one per role
    <folder>/<run id>.learner-0.pftrace
    <folder>/timeline_<run id>.pftrace         afterwards: their packets one after the other

A part whose process was killed may end within a packet; merging leaves such an end out. If the
launcher itself was killed the parts stay: each opens by itself, and `cat` joins what is whole.
"""

import mmap
import os
import shutil
from pathlib import Path

from unilab_core.run.whole_file import whole_file
from unilab_core.telemetry.timeline import packets
from unilab_core.telemetry.timeline.wire import BYTES, DamagedTraceError, read_varint

SUFFIX = ".pftrace"
PACKET_KEY = 1 << 3 | BYTES
_ROLES = ("collector", "learner")


def timeline_folder(run_dir: Path, asked: str | None) -> Path:
    """Where the timeline of a run is kept (`training.trace_output_dir`)."""
    return run_dir / "trace" if asked is None else Path(os.path.abspath(asked))


def part_path(folder: Path, run_id: str, role: str, rank: int) -> Path:
    """What one process writes."""
    return folder / f"{run_id}.{role}-{rank}{SUFFIX}"


def merged_path(folder: Path, run_id: str) -> Path:
    """The whole timeline."""
    return folder / f"timeline_{run_id}{SUFFIX}"


def sequence_number(role: str, rank: int) -> int:
    """Packet sequence of a process; no two processes of a run share one."""
    return 1 + len(_ROLES) * rank + _ROLES.index(role)


def parts_of(folder: Path, run_id: str) -> list[Path]:
    """Parts of a run that are not merged yet."""
    return sorted(folder.glob(f"{run_id}.*{SUFFIX}"))


def timeline_files(source: Path) -> list[Path]:
    """The files to read for a run directory, a folder of traces or a single file.

    Raises:
        FileNotFoundError: there is no timeline, or the folder holds several.
    """
    if source.is_file():
        return [source]
    folder = source / "trace" if (source / "trace").is_dir() else source
    merged = sorted(folder.glob(f"timeline_*{SUFFIX}"))
    parts = sorted(path for path in folder.glob(f"*{SUFFIX}") if path not in merged)
    runs = {path.name.partition(".")[0] for path in parts}
    if not merged and len(runs) == 1:
        return parts
    if len(merged) != 1:
        found = f"{len(merged)} timelines" if merged else "no timeline"
        raise FileNotFoundError(f"{source}: {found}; name one *{SUFFIX} file")
    return merged


def merge_parts(folder: Path, run_id: str) -> Path | None:
    """Join the parts of a run, whose processes are gone; None where there are none.

    Raises:
        OSError: the disk is full or the folder cannot be written; the parts are left.
    """
    parts = parts_of(folder, run_id)
    if not parts:
        return None
    target = merged_path(folder, run_id)
    with whole_file(target) as output:
        for part in parts:
            _copy(part, output.fileno(), whole_bytes(part))
    for part in parts:
        part.unlink()
    return target


def whole_bytes(path: Path) -> int:
    """Length of the file up to its last complete packet."""
    size = path.stat().st_size
    if size == 0:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        marker = packets.packet(packets.MARKER_FIELD)
        at = max(data.rfind(marker), 0)
        while at < size:
            end = _packet_end(data, at, size)
            if end is None:
                break
            at = end
        return at


def _packet_end(data: mmap.mmap, at: int, size: int) -> int | None:
    if data[at] != PACKET_KEY:
        return None
    head = data[at + 1 : min(at + 11, size)]
    try:
        length, used = read_varint(head, 0)
    except DamagedTraceError:
        return None
    end = at + 1 + used + length
    return end if end <= size else None


def _copy(part: Path, output_fd: int, count: int) -> None:
    with part.open("rb") as source, os.fdopen(os.dup(output_fd), "wb") as output:
        if count == part.stat().st_size:
            shutil.copyfileobj(source, output, 1 << 20)
            return
        while count > 0:
            block = source.read(min(count, 1 << 20))
            output.write(block)
            count -= len(block)
