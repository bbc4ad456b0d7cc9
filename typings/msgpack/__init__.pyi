"""The part of msgpack that UniLab uses."""

from collections.abc import Callable, Iterator
from typing import Any

from msgpack import exceptions as exceptions

class ExtType:
    def __init__(self, code: int, data: bytes) -> None: ...

class Packer:
    def __init__(
        self,
        *,
        default: Callable[[object], object] | None = None,
        use_bin_type: bool = True,
        autoreset: bool = True,
    ) -> None: ...
    def pack(self, obj: object) -> bytes: ...
    def reset(self) -> None: ...

class Unpacker:
    def __init__(self, *, raw: bool = False, max_buffer_size: int = ...) -> None: ...
    def feed(self, next_bytes: bytes) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...

def packb(
    o: object, *, default: Callable[[object], object] | None = None, use_bin_type: bool = True
) -> bytes: ...
def unpackb(
    packed: bytes | memoryview,
    *,
    raw: bool = False,
    strict_map_key: bool = True,
    ext_hook: Callable[[int, bytes], object] = ...,
    max_buffer_size: int = ...,
) -> object: ...
