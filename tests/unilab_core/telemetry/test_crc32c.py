"""The checksum equals the published vectors and the bitwise definition."""

import random

import pytest

from unilab_core.telemetry.crc32c import crc32c, masked_crc32c


def bitwise(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_published_vectors(data, value):
    assert crc32c(data) == value


@pytest.mark.parametrize("length", [1, 3, 4, 63, 64, 65, 511, 512, 513, 1024, 1500, 4097])
def test_every_length_agrees_with_the_bitwise_definition(length):
    data = random.Random(length).randbytes(length)
    assert crc32c(data) == bitwise(data)


def test_the_mask_rotates_by_fifteen_and_adds_a_constant():
    crc = 0xE3069283
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    assert masked_crc32c(b"123456789") == (rotated + 0xA282EAD8) & 0xFFFFFFFF
