"""The part of posix_ipc that unilab_ipc uses."""

O_CREX: int

class Error(Exception): ...
class ExistentialError(Error): ...
class PermissionsError(Error): ...

class SharedMemory:
    fd: int
    size: int
    name: str
    def __init__(
        self,
        name: str,
        flags: int = 0,
        mode: int = 0o600,
        size: int = 0,
        read_only: bool = False,
    ) -> None: ...
    def close_fd(self) -> None: ...
    def unlink(self) -> None: ...

def unlink_shared_memory(name: str) -> None: ...
