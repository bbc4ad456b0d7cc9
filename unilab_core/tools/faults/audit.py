"""What a run may leave behind: nothing that lives, no shared name, no half-written file.

Every process of a job carries the path of its registry in its environment; that finds children
whatever became of their parent. Shared names are found by the run ids of the run directories.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from unilab_core.nets.torch_file import DamagedFileError, read_torch_file
from unilab_core.tools.faults.tiny_job import JOB, TinyJob
from unilab_ipc.errors import IpcError
from unilab_ipc.memory import SHM_DIR
from unilab_ipc.peers import Peer, process_start_ticks
from unilab_ipc.registry import RUNTIME_DIR_VARIABLE

KEPT_IN_REGISTRY = frozenset({"owner.lock", "ended.json"})


def processes_of(job: TinyJob) -> list[int]:
    """Pids of living processes that belong to the job; zombies have no environment any more."""
    marker = f"{RUNTIME_DIR_VARIABLE}={job.registry}\0".encode()
    found: list[int] = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environ = Path(entry.path, "environ").read_bytes()
        except OSError:  # gone, or not ours
            continue
        if marker in environ + b"\0":
            found.append(int(entry.name))
    return found


def end_processes(job: TinyJob) -> list[int]:
    """SIGKILL to whatever is left; each was identified by its environment a moment ago."""
    left = processes_of(job)
    for pid in left:
        signal_process(pid, signal.SIGKILL)
    return left


def signal_process(pid: int, signum: int) -> None:
    """Signal a process that was just identified as one of the job; one that has ended is no error.

    Through a pidfd that is opened with the start time: the number alone may be somebody else's.
    """
    ticks = process_start_ticks(pid)
    if ticks is None:
        return
    peer = Peer("process", 0, pid, ticks)
    with contextlib.suppress(IpcError):
        peer.open().send_signal(signum)
    peer.close()


def shared_names(job: TinyJob) -> list[str]:
    """Names in /dev/shm of every run of the job."""
    prefixes = tuple(f"ul-{run_id}-" for run_id in job.run_ids())
    return sorted(name for name in os.listdir(SHM_DIR) if prefixes and name.startswith(prefixes))


def registry_leftovers(job: TinyJob) -> list[str]:
    """Files of the job folder that an ended job does not have."""
    folder = job.registry / JOB
    if not folder.is_dir():
        return []
    names = {path.name for path in folder.iterdir()}
    missing = [f"no {name}" for name in KEPT_IN_REGISTRY - names]
    return sorted(names - KEPT_IN_REGISTRY) + missing


def temporary_files(job: TinyJob) -> list[str]:
    """Half-written files in the run directories."""
    runs = job.folder / "runs"
    return sorted(str(path.relative_to(runs)) for path in runs.rglob(".*.tmp"))


def checkpoint_problem(job: TinyJob) -> str | None:
    """Why the newest checkpoint does not load; None: it does, or there is none."""
    run_dirs = job.run_dirs()
    found = sorted((run_dirs[-1] / "checkpoints").glob("checkpoint_*.pt")) if run_dirs else []
    if not found:
        return None
    try:
        read_torch_file(found[-1])
    except (OSError, DamagedFileError) as error:
        return str(error)
    return None


def leftovers(job: TinyJob) -> list[str]:
    """Everything that should not be there once a job has ended and garbage was collected."""
    found = [f"process {pid} is alive" for pid in processes_of(job)]
    found += [f"/dev/shm/{name}" for name in shared_names(job)]
    found += [f"registry: {name}" for name in registry_leftovers(job)]
    found += [f"temporary file {name}" for name in temporary_files(job)]
    return found
