"""Files that a reader never sees half-written, and of which a killed writer leaves nothing."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_NO_NAMELESS_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""What open(2) says of O_TMPFILE where the file system or the kernel does not know it."""
_OWN_FILES = "/proc/self/fd"


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Write a file that takes its name, and the place of an older one, at the end of the block.

    Until then it has no name at all (O_TMPFILE, open(2)), or a hidden one beside `path` where the
    file system cannot do that. Whatever goes wrong before leaves the old file, and nothing beside
    it.

    Args:
        path: the file.
        mode: permissions of the new file, less the umask.

    Raises:
        OSError: the file cannot be written, synced or named.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    fd = _open_nameless(path.parent, mode)
    is_nameless = fd is not None
    if fd is None:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            _sync(file)
            if is_nameless and not _link(file, path):
                # Only a named file can take the place of another.
                _link(file, partial)
        if partial.exists():
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _open_nameless(folder: Path, mode: int) -> int | None:
    """A file without a name that can be given one; None where there are no such files."""
    if not os.path.isdir(_OWN_FILES):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in _NO_NAMELESS_FILES:
            return None
        raise


def _link(file: BinaryIO, path: Path) -> bool:
    """Give a nameless file a name; False where that is taken."""
    # With a descriptor os.link calls linkat(2), which can follow the link that /proc has for it.
    folder_fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.link(f"{_OWN_FILES}/{file.fileno()}", path.name, dst_dir_fd=folder_fd)
    except FileExistsError:
        return False
    finally:
        os.close(folder_fd)
    return True


def _sync(file: BinaryIO) -> None:
    """Everything written so far is on the disk."""
    file.flush()
    os.fsync(file.fileno())
