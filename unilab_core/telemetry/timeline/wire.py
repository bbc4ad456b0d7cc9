"""Protocol-buffer fields as bytes, and back: the little of the format that a trace needs.

field = key varint (number << 3 | kind), then by kind
    0  varint         1  8 bytes, little endian         2  varint length, that many bytes
    5  4 bytes, little endian
"""

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_VARINT_BYTES = 10

Value = int | bytes | memoryview


class DamagedTraceError(ValueError):
    """Bytes that are no protocol-buffer message."""


def varint(value: int) -> bytes:
    """An unsigned integer (or a negative one as its 64-bit complement), 7 bits a byte."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uint_field(number: int, value: int) -> bytes:
    """An integer, enum or bool field."""
    return varint(number << 3 | VARINT) + varint(value)


def fixed64_field(number: int, value: int) -> bytes:
    """A fixed64 field."""
    return varint(number << 3 | FIXED64) + struct.pack("<Q", value)


def double_field(number: int, value: float) -> bytes:
    """A double field."""
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


def bytes_field(number: int, value: bytes) -> bytes:
    """A nested message, or bytes."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def text_field(number: int, value: str) -> bytes:
    """A string field."""
    return bytes_field(number, value.encode())


def fields(message: bytes | memoryview) -> Iterator[tuple[int, Value]]:
    """Number and value of every field; nested messages and strings as bytes, fixed ones as ints.

    Raises:
        DamagedTraceError: the bytes end within a field or hold an unknown kind.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = read_varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = read_varint(message, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = read_varint(message, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise DamagedTraceError(f"field {number} has kind {kind}")
        if at + size > end:
            raise DamagedTraceError(f"field {number} ends after the message")
        part = message[at : at + size]
        yield number, part if kind == BYTES else int.from_bytes(part, "little")
        at += size


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The varint at an offset and the offset after it."""
    value = shift = 0
    for index in range(at, min(at + MAX_VARINT_BYTES, len(data))):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index + 1
        shift += 7
    raise DamagedTraceError("an integer does not end")


def signed(value: int) -> int:
    """An int64 field as it was meant."""
    return value - (1 << 64) if value >= 1 << 63 else value


def as_double(bits: int) -> float:
    """A double field as it was meant."""
    return struct.unpack("<d", struct.pack("<Q", bits))[0]
