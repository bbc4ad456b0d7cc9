"""Protocol-buffer fields against hand-made bytes, and damage."""

import pytest

from unilab_core.telemetry.timeline.wire import (
    DamagedTraceError,
    as_double,
    bytes_field,
    double_field,
    fields,
    fixed64_field,
    read_varint,
    signed,
    text_field,
    uint_field,
    varint,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"),
     (2**64 - 1, "ffffffffffffffffff01"), (-1, "ffffffffffffffffff01")],
)  # fmt: skip
def test_varints_are_those_of_the_format(value, expected):
    assert varint(value).hex() == expected
    assert read_varint(bytes.fromhex(expected), 0) == (value % 2**64, len(expected) // 2)


def test_fields_are_those_of_the_format():
    assert uint_field(1, 150).hex() == "089601"
    assert text_field(2, "testing").hex() == "120774657374696e67"
    assert fixed64_field(47, 1).hex() == "f9020100000000000000"


def test_what_is_written_is_read():
    message = (
        uint_field(1, 7) + text_field(2, "ä") + fixed64_field(47, 2**63) + double_field(44, -0.25)
        + bytes_field(5, uint_field(1, 1)) + uint_field(30, -3)
    )  # fmt: skip
    found = dict(fields(message))
    assert (found[1], found[2], found[47]) == (7, "ä".encode(), 2**63)
    assert as_double(found[44]) == -0.25
    assert dict(fields(found[5])) == {1: 1}
    assert signed(found[30]) == -3


@pytest.mark.parametrize("damage", ["0a05ab", "08", "0880808080808080808080ff", "0b01"])
def test_damage_is_an_error(damage):
    with pytest.raises(DamagedTraceError):
        list(fields(bytes.fromhex(damage)))
