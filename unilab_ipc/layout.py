"""One table per segment; everything else about its memory is derived from the table.

A `Layout` is a list of `Field`s with symbolic shapes. Given the geometry (`dims`, symbol -> int) it
yields byte offsets, the total size, numpy views, a fingerprint and a documentation table. No other
file computes an offset or multiplies by an item size.

Memory: a 64-byte header (magic, version, size, fingerprint), then the fields, each starting on a
64-byte line. A field with `line=True` gives *every element* a line of its own, so that words
written by different processes never share a cache line and never cross one.
"""

import hashlib
import json
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LINE_BYTES = 64
HEADER_BYTES = LINE_BYTES
MAGIC = int.from_bytes(b"UNILABsm", "little")
MAX_SEGMENT_BYTES = 1 << 46

Dims = Mapping[str, int]
Memory = mmap.mmap | NDArray[np.uint8]
"""What a layout can be laid over."""

_HEADER_WORDS = ("magic", "version", "size_bytes", "fingerprint")


@dataclass(slots=True, frozen=True)
class Field:
    """One row of a layout table."""

    name: str
    dtype: str
    """Explicit little-endian numpy dtype such as `<f4`, `<i8`, or `u1`."""
    shape: tuple[int | str, ...]
    """Sizes or symbols; () is a single word."""
    writer: str
    """The one role that may write it."""
    doc: str
    line: bool = False
    """Give every element a 64-byte line of its own (counters, sequence words)."""
    initial: int = 0
    """Value stored in every element by the creator."""


@dataclass(slots=True, frozen=True)
class Layout:
    """The table of one segment kind."""

    kind: str
    version: int
    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.kind}: duplicate field names in {names}")
        for field in self.fields:
            _check_dtype(self.kind, field)

    def symbols(self) -> tuple[str, ...]:
        """Symbols that `dims` must define, in order of appearance."""
        seen: dict[str, None] = {}
        for field in self.fields:
            for part in field.shape:
                if isinstance(part, str):
                    seen[part] = None
        return tuple(seen)

    def size_bytes(self, dims: Dims) -> int:
        """Size of the whole segment, header included."""
        end = HEADER_BYTES
        for _, offset, shape, strides in self._places(dims):
            end = offset + _span_bytes(shape, strides)
        size = _round_up(end, LINE_BYTES)
        if size > MAX_SEGMENT_BYTES:
            raise ValueError(f"{self.kind}: {size} bytes is beyond the limit {MAX_SEGMENT_BYTES}")
        return size

    def views(self, buffer: Memory, dims: Dims) -> dict[str, NDArray[Any]]:
        """Numpy arrays over `buffer`, one per field; read-only when the buffer is."""
        return {
            field.name: np.ndarray(
                shape, np.dtype(field.dtype), buffer=buffer, offset=offset, strides=strides
            )
            for field, offset, shape, strides in self._places(dims)
        }

    def fingerprint(self, dims: Dims) -> int:
        """64-bit digest of kind, version, fields and geometry; never 0 (0 means not ready)."""
        table = [
            self.kind,
            self.version,
            [[f.name, f.dtype, list(f.shape), f.writer, f.line, f.initial] for f in self.fields],
            {symbol: self._size(symbol, dims) for symbol in self.symbols()},
        ]
        text = json.dumps(table, sort_keys=True, separators=(",", ":")).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") or 1

    def store_initial(self, views: Mapping[str, NDArray[Any]]) -> None:
        """Write the non-zero initial values into fresh (zeroed) memory."""
        for field in self.fields:
            if field.initial:
                views[field.name][...] = field.initial

    def render(self) -> str:
        """Markdown table of the fields."""
        rows = [
            f"**{self.kind}** (version {self.version})",
            "",
            "| field | dtype | shape | writer | meaning |",
            "|---|---|---|---|---|",
        ]
        for field in self.fields:
            shape = "[" + ", ".join(str(part) for part in field.shape) + "]" if field.shape else ""
            rows.append(
                f"| `{field.name}` | `{field.dtype}` | {shape} | {field.writer} | {field.doc} |"
            )
        return "\n".join(rows)

    def _places(self, dims: Dims) -> Iterator[tuple[Field, int, tuple[int, ...], tuple[int, ...]]]:
        offset = HEADER_BYTES
        for field in self.fields:
            shape = tuple(self._size(part, dims) for part in field.shape)
            strides = _strides(shape, _pitch_bytes(field))
            yield field, offset, shape, strides
            offset = _round_up(offset + _span_bytes(shape, strides), LINE_BYTES)

    def _size(self, part: int | str, dims: Dims) -> int:
        if isinstance(part, int):
            return part
        if part not in dims:
            raise ValueError(f"{self.kind}: geometry lacks {part!r}, got {sorted(dims)}")
        size = int(dims[part])
        if size < 0:
            raise ValueError(f"{self.kind}: {part} must be >= 0, got {size}")
        return size


def word(array: NDArray[Any]) -> memoryview:
    """One 8-byte word as a memoryview: `w[0]` is a plain int, three times as fast as numpy's.

    A load or store is one aligned 8-byte access, as through numpy.
    """
    return array.reshape(1).data


def header_words(buffer: Memory) -> dict[str, NDArray[Any]]:
    """The header's words as one-element arrays over `buffer`."""
    return {
        word: np.ndarray((1,), np.dtype("<u8"), buffer=buffer, offset=8 * index)
        for index, word in enumerate(_HEADER_WORDS)
    }


def _check_dtype(kind: str, field: Field) -> None:
    dtype = np.dtype(field.dtype)
    if dtype.itemsize > 1 and not field.dtype.startswith("<"):
        raise ValueError(f"{kind}.{field.name}: dtype {field.dtype} does not state its byte order")
    if field.line and dtype.itemsize != 8:
        raise ValueError(f"{kind}.{field.name}: a word on its own line must be 8 bytes wide")


def _pitch_bytes(field: Field) -> int:
    return LINE_BYTES if field.line else np.dtype(field.dtype).itemsize


def _strides(shape: tuple[int, ...], pitch_bytes: int) -> tuple[int, ...]:
    strides: list[int] = []
    step = pitch_bytes
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _span_bytes(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Bytes from the first element to behind the last (whole lines for a single word)."""
    if 0 in shape:
        return 0
    if not shape:
        return LINE_BYTES
    return shape[0] * strides[0]


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
