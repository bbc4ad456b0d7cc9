"""Segments: POSIX shared memory through posix_ipc, or the same layout inside one process.

Owner and life cycle: the launcher creates (exclusively) and unlinks, everybody else attaches and
never unlinks. Creation: O_CREX -> flock -> posix_fallocate -> initial values -> header ->
fingerprint. The fingerprint is stored last, so that "missing", "not ready" and "other version" are
three different answers to an attaching process.

The creator keeps `flock` on the descriptor for the life of the segment; the kernel drops it when
the creator dies, and that is the proof of death that garbage collection needs. Between O_CREX and
flock a collector may see an unlocked object and remove it, so the creator checks afterwards that
the name still refers to its inode and starts again if not.

# SYNC POINT: ready (store of the fingerprint here, check of it in `open_segment`)
"""

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import posix_ipc
from numpy.typing import NDArray

from unilab_ipc.errors import (
    EXHAUSTED,
    IpcError,
    NoSpace,
    SegmentCorrupt,
    SegmentForeign,
    SegmentMismatch,
    SegmentMissing,
    SegmentNotReady,
)
from unilab_ipc.layout import HEADER_BYTES, MAGIC, Dims, Layout, header_words

SHM_DIR = "/dev/shm"
SEGMENT_MODE = 0o600

_CREATE_ATTEMPTS = 100
_RETRY_S = 0.002


class Segment:
    """A mapped segment: `.view[field]` are numpy arrays over the memory."""

    __slots__ = ("_lock_fd", "_mapping", "dims", "fingerprint", "name", "size_bytes", "view")

    def __init__(
        self,
        layout: Layout,
        name: str,
        dims: Dims,
        mapping: mmap.mmap,
        lock_fd: int | None = None,
    ) -> None:
        self.name = name
        self.dims = dict(dims)
        self.size_bytes = layout.size_bytes(dims)
        self.fingerprint = layout.fingerprint(dims)
        self.view: dict[str, NDArray[Any]] = layout.views(mapping, dims)
        self._mapping: mmap.mmap | None = mapping
        self._lock_fd = lock_fd

    def close(self) -> None:
        """Drop our views, the mapping and the creator's lock; calling again does nothing.

        The pages are unmapped when the last array over them is gone. Never by `mmap.close()`: numpy
        keeps a reference to the mapping but no export, so closing it would pull the memory away
        from under arrays that a port still holds.
        """
        self.view = {}
        self._mapping = None
        if self._lock_fd is not None:
            # The mapping's own duplicate of the descriptor shares the lock: release it by name.
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
            os.close(self._lock_fd)
            self._lock_fd = None

    def require_whole(self) -> None:
        """SegmentCorrupt if somebody has cut the file short (creator only).

        The pages come back first, zeroed: whoever still touches the mapping would die of SIGBUS.
        """
        if self._lock_fd is None:
            raise IpcError(f"{self.name}: only the creator can look after the size")
        found_bytes = os.fstat(self._lock_fd).st_size
        if found_bytes < self.size_bytes:
            os.posix_fallocate(self._lock_fd, 0, self.size_bytes)
            raise SegmentCorrupt(f"{self.name} to be {self.size_bytes} bytes", f"{found_bytes}")

    def unlink(self) -> None:
        """Remove the name (creator only; before `close`, while the lock proves it is ours)."""
        if self._lock_fd is None:
            raise IpcError(f"{self.name}: only the creator of an open segment may unlink it")
        if _names_inode(self.name, self._lock_fd):
            with contextlib.suppress(posix_ipc.ExistentialError):
                posix_ipc.unlink_shared_memory(self.name)


def create_segment(layout: Layout, name: str, dims: Dims) -> Segment:
    """Create, allocate and publish a segment; NoSpace, or IpcError if the name exists."""
    size_bytes = layout.size_bytes(dims)
    free_bytes = shm_free_bytes()
    if size_bytes > free_bytes:
        raise NoSpace(size_bytes, free_bytes)
    fd = _create_locked(name)
    try:
        os.fchmod(fd, SEGMENT_MODE)
        _allocate(fd, size_bytes)
        mapping = mmap.mmap(fd, size_bytes)
    except BaseException:
        with contextlib.suppress(posix_ipc.ExistentialError):
            posix_ipc.unlink_shared_memory(name)
        os.close(fd)
        raise
    segment = Segment(layout, name, dims, mapping, lock_fd=fd)
    _publish(layout, segment, mapping)
    return segment


def open_segment(
    layout: Layout, name: str, dims: Dims, readonly: bool = False, timeout_s: float = 0.0
) -> Segment:
    """Attach to a segment after checking owner, mode, size, magic, version and fingerprint.

    Missing and not-ready segments are looked for again until `timeout_s` has passed. Roles attach
    after a doorbell, when everything is ready; the interval here serves read-only monitors.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return _attach(layout, name, dims, readonly, timeout_s)
        except (SegmentMissing, SegmentNotReady):
            if time.monotonic() >= deadline_s:
                raise
        time.sleep(_RETRY_S)


def local_segment(layout: Layout, dims: Dims) -> Segment:
    """The same layout in private memory of this process (tests, dry runs)."""
    mapping = mmap.mmap(-1, layout.size_bytes(dims))
    segment = Segment(layout, f"local:{layout.kind}", dims, mapping)
    _publish(layout, segment, mapping)
    return segment


def shm_free_bytes() -> int:
    """Bytes that /dev/shm can still hold."""
    info = os.statvfs(SHM_DIR)
    if info.f_blocks == 0:  # a tmpfs without a size limit
        return 1 << 62
    return info.f_bavail * info.f_frsize


def _create_locked(name: str) -> int:
    for _ in range(_CREATE_ATTEMPTS):
        try:
            shm = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=SEGMENT_MODE)
        except posix_ipc.ExistentialError:
            raise IpcError(f"shared memory segment {name} exists already") from None
        fd = shm.fd
        try:
            # Only a garbage collector can hold the lock now, for the instant it needs to unlink.
            locked = _lock_soon(fd)
            if locked and _names_inode(name, fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        if not locked:
            break
    raise IpcError(f"shared memory segment {name} could not be locked after its creation")


def _lock_soon(fd: int) -> bool:
    for _ in range(_CREATE_ATTEMPTS):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(_RETRY_S)
    return False


def _names_inode(name: str, fd: int) -> bool:
    try:
        found = os.stat(SHM_DIR + name, follow_symlinks=False)
    except FileNotFoundError:
        return False
    ours = os.fstat(fd)
    return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)


def _allocate(fd: int, size_bytes: int) -> None:
    # Not ftruncate: a sparse segment on a full /dev/shm is a SIGBUS at the first touch.
    try:
        os.posix_fallocate(fd, 0, size_bytes)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.ENOMEM):
            raise NoSpace(size_bytes, shm_free_bytes()) from error
        raise


def _publish(layout: Layout, segment: Segment, mapping: mmap.mmap) -> None:
    layout.store_initial(segment.view)
    header = header_words(mapping)
    header["magic"][0] = MAGIC
    header["version"][0] = layout.version
    header["size_bytes"][0] = segment.size_bytes
    # SYNC POINT: ready
    header["fingerprint"][0] = segment.fingerprint


def _attach(layout: Layout, name: str, dims: Dims, readonly: bool, timeout_s: float) -> Segment:
    try:
        shm = posix_ipc.SharedMemory(name, read_only=readonly)
    except posix_ipc.ExistentialError:
        raise SegmentMissing(name) from None
    except (posix_ipc.PermissionsError, OSError) as error:
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            raise
        raise SegmentForeign(f"{name} to be ours", str(error)) from error
    try:
        _check_file(name, os.fstat(shm.fd), timeout_s)
        _check_header(layout, name, dims, _read_header(shm.fd), timeout_s)
        size_bytes = layout.size_bytes(dims)
        found_bytes = os.fstat(shm.fd).st_size
        if found_bytes != size_bytes:
            raise SegmentForeign(f"{name} to be {size_bytes} bytes", f"{found_bytes} bytes")
        access = mmap.ACCESS_READ if readonly else mmap.ACCESS_WRITE
        mapping = mmap.mmap(shm.fd, size_bytes, access=access)
    finally:
        shm.close_fd()
    return Segment(layout, name, dims, mapping)


@dataclass(slots=True, frozen=True)
class _Header:
    magic: int
    version: int
    size_bytes: int
    fingerprint: int


def _read_header(fd: int) -> _Header:
    # pread instead of the mapping: a file cut short gives fewer bytes here, never a SIGBUS.
    raw = os.pread(fd, HEADER_BYTES, 0).ljust(HEADER_BYTES, b"\0")
    words = header_words(np.frombuffer(raw, np.uint8))
    return _Header(**{word: int(value[0]) for word, value in words.items()})


def _check_file(name: str, info: os.stat_result, timeout_s: float) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise SegmentForeign(f"{name} to be a regular file", f"mode {info.st_mode:o}")
    if info.st_uid != os.geteuid():
        raise SegmentForeign(f"{name} to belong to uid {os.geteuid()}", f"uid {info.st_uid}")
    mode = stat.S_IMODE(info.st_mode)
    if mode != SEGMENT_MODE:
        raise SegmentForeign(f"{name} to have mode {SEGMENT_MODE:o}", f"mode {mode:o}")
    if info.st_size == 0:
        raise SegmentNotReady(name, timeout_s)
    if info.st_size < HEADER_BYTES:
        raise SegmentForeign(f"{name} to hold a header", f"{info.st_size} bytes")


def _check_header(layout: Layout, name: str, dims: Dims, header: _Header, timeout_s: float) -> None:
    # SYNC POINT: ready
    if header.fingerprint == 0:
        raise SegmentNotReady(name, timeout_s)
    if header.magic != MAGIC:
        raise SegmentMismatch(f"{name} to start with our magic number", f"{header.magic:#x}")
    if header.version != layout.version:
        raise SegmentMismatch(f"{layout.kind} version {layout.version}", f"{header.version}")
    fingerprint = layout.fingerprint(dims)
    if header.fingerprint != fingerprint:
        raise SegmentMismatch(
            f"{layout.kind} with fingerprint {fingerprint:016x}", f"{header.fingerprint:016x}"
        )
    if header.size_bytes != layout.size_bytes(dims):
        raise SegmentMismatch(f"{layout.size_bytes(dims)} bytes", f"{header.size_bytes} bytes")
