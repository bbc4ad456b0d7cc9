"""One look at what a command uses: its processes, their descriptors, the GPU, the files it writes.

The monitor adopts orphans, so every process that the command ever started is a descendant of the
monitor, whatever session or parent it chose. A process that ends while it is looked at is skipped.
"""

import os
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_COMMAND_CHARS = 512
GPU_QUERY_TIMEOUT_S = 5.0
SHM = Path("/dev/shm")
KIB = 1024

_FD_PREFIXES = (
    ("pipe:", "pipe"),
    ("socket:", "socket"),
    ("/memfd:", "memfd"),
    ("anon_inode:[eventfd]", "eventfd"),
    ("anon_inode:[eventpoll]", "eventpoll"),
    ("/dev/nvidia", "nvidia"),
    ("/dev/shm/", "shared_memory"),
)
FD_CLASSES = (*(name for _, name in _FD_PREFIXES), "other")
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // KIB


@dataclass(kw_only=True, slots=True, frozen=True)
class ProcessRow:
    """One process as /proc/<pid>/stat has it."""

    pid: int
    ppid: int
    pgid: int
    state: str
    start_ticks: int
    num_threads: int
    rss_kib: int

    @property
    def identity(self) -> tuple[int, int]:
        """Pid and start time: a pid alone is reused."""
        return self.pid, self.start_ticks


def descendants(root_pid: int) -> list[ProcessRow]:
    """Every living process below one, not itself; zombies are dead."""
    by_parent: dict[int, list[ProcessRow]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (row := read_process(int(entry.name))) is not None:
            by_parent.setdefault(row.ppid, []).append(row)
    found: list[ProcessRow] = []
    waiting = [root_pid]
    while waiting:
        for row in by_parent.get(waiting.pop(), []):
            waiting.append(row.pid)
            found.append(row)
    return sorted((row for row in found if row.state not in "ZX"), key=lambda row: row.pid)


def read_process(pid: int) -> ProcessRow | None:
    """One process; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].decode("ascii").split()
    return ProcessRow(
        pid=pid,
        state=fields[0],
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        num_threads=int(fields[17]),
        start_ticks=int(fields[19]),
        rss_kib=int(fields[21]) * _PAGE_KIB,
    )


def process_sample(rows: Collection[ProcessRow]) -> dict[str, Any]:
    """The `process` part of a sample."""
    processes: list[dict[str, Any]] = []
    for row in rows:
        classes = _fd_classes(row.pid)
        processes.append(
            {
                "pid": row.pid,
                "start_ticks": row.start_ticks,
                "rss_kib": row.rss_kib,
                "thread_count": row.num_threads,
                "fd_count": sum(classes.values()),
                "fd_classes": classes,
                "command": command_of(row.pid),
            }
        )
    return {
        "process_count": len(processes),
        "rss_kib_total": sum(p["rss_kib"] for p in processes),
        "thread_count_total": sum(p["thread_count"] for p in processes),
        "fd_count_total": sum(p["fd_count"] for p in processes),
        "fd_classes_total": {
            name: sum(p["fd_classes"][name] for p in processes) for name in FD_CLASSES
        },
        "processes": processes,
    }


def command_of(pid: int) -> str:
    """Command line, shortened; empty when the process is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()[:MAX_COMMAND_CHARS]


def gpu_sample(pids: Collection[int]) -> dict[str, Any]:
    """The `gpu` part: memory of these processes as nvidia-smi tells it; nothing without one."""
    processes: list[dict[str, int]] = []
    for line in _gpu_lines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[0]) in pids:
            processes.append({"pid": int(words[0]), "used_memory_mib": int(words[1])})
    return {
        "process_count": len(processes),
        "used_memory_mib_total": sum(p["used_memory_mib"] for p in processes),
        "processes": processes,
    }


def progress_sample(folder: Path, without: Collection[Path]) -> dict[str, Any]:
    """The `progress` part: files below a folder, the soak's own ones left out."""
    count, total, newest = 0, 0, 0.0
    for path in folder.rglob("*"):
        try:
            info = path.lstat()
        except OSError:
            continue
        if path in without or path.is_dir():
            continue
        count += 1
        total += info.st_size
        newest = max(newest, info.st_mtime)
    return {"file_count": count, "bytes_total": total, "max_mtime": newest or None}


def shared_memory_sample(run_id: str | None) -> dict[str, Any]:
    """The `shared_memory` part: objects of one run in /dev/shm."""
    names: list[str] = []
    total_bytes = 0
    for path in SHM.glob(f"ul-{run_id}-*") if run_id else ():
        try:
            total_bytes += path.stat().st_size
        except OSError:
            continue
        names.append(path.name)
    return {"names": sorted(names), "bytes_total": total_bytes}


def _fd_classes(pid: int) -> dict[str, int]:
    classes = dict.fromkeys(FD_CLASSES, 0)
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return classes
    for name in names:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        found = (kind for prefix, kind in _FD_PREFIXES if target.startswith(prefix))
        classes[next(found, "other")] += 1
    return classes


def _gpu_lines() -> list[str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = ["--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            [tool, *query],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GPU_QUERY_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
