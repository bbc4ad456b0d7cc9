"""Offsets, sizes, views and fingerprints derived from a table."""

import mmap

import numpy as np
import pytest

from unilab_ipc.layout import HEADER_BYTES, LINE_BYTES, Field, Layout

TABLE = Layout(
    "sample",
    3,
    (
        Field("count", "<i8", (), "a", "one word", line=True, initial=-1),
        Field("rows", "<f4", ("E", 3), "a", "payload"),
        Field("marks", "<i8", ("D",), "b", "words apart", line=True),
        Field("flags", "u1", ("E",), "b", "bytes"),
    ),
)
DIMS = {"E": 5, "D": 2}


def address(array: np.ndarray, base: np.ndarray) -> int:
    return array.__array_interface__["data"][0] - base.__array_interface__["data"][0]


def test_size_is_header_plus_whole_lines_per_field() -> None:
    # header 64 | count 64 | rows 5*3*4 = 60 -> 64 | marks 2*64 | flags 5 -> 64
    assert TABLE.size_bytes(DIMS) == 64 + 64 + 64 + 128 + 64


def test_fields_start_on_lines_of_their_own() -> None:
    memory = mmap.mmap(-1, TABLE.size_bytes(DIMS))
    base = np.frombuffer(memory, np.uint8)
    views = TABLE.views(memory, DIMS)
    offsets = {name: address(array, base) for name, array in views.items()}
    assert offsets == {"count": 64, "rows": 128, "marks": 192, "flags": 320}
    assert HEADER_BYTES == LINE_BYTES == 64


def test_words_of_a_line_field_are_64_bytes_apart() -> None:
    views = TABLE.views(mmap.mmap(-1, TABLE.size_bytes(DIMS)), DIMS)
    assert views["marks"].strides == (64,)
    assert views["rows"].strides == (12, 4)


def test_views_share_memory_and_do_not_overlap() -> None:
    memory = mmap.mmap(-1, TABLE.size_bytes(DIMS))
    views = TABLE.views(memory, DIMS)
    for number, array in enumerate(views.values()):
        array[...] = number + 1
    again = TABLE.views(memory, DIMS)
    assert [int(array.min()) for array in again.values()] == [1, 2, 3, 4]
    assert [int(array.max()) for array in again.values()] == [1, 2, 3, 4]


def test_zero_sized_fields_take_no_memory() -> None:
    assert TABLE.size_bytes({"E": 0, "D": 0}) == 64 + 64


def test_initial_values_are_stored() -> None:
    views = TABLE.views(mmap.mmap(-1, TABLE.size_bytes(DIMS)), DIMS)
    TABLE.store_initial(views)
    assert int(views["count"][()]) == -1
    assert int(views["marks"].sum()) == 0


def test_fingerprint_changes_with_geometry_version_and_table() -> None:
    other_version = Layout("sample", 4, TABLE.fields)
    other_writer = Layout(
        "sample", 3, (*TABLE.fields[:3], Field("flags", "u1", ("E",), "a", "bytes"))
    )
    fingerprints = {
        TABLE.fingerprint(DIMS),
        TABLE.fingerprint({"E": 6, "D": 2}),
        other_version.fingerprint(DIMS),
        other_writer.fingerprint(DIMS),
    }
    assert len(fingerprints) == 4
    assert 0 not in fingerprints


def test_fingerprint_ignores_prose_and_unused_symbols() -> None:
    reworded = Layout(
        "sample", 3, (*TABLE.fields[:3], Field("flags", "u1", ("E",), "b", "reworded"))
    )
    assert reworded.fingerprint({**DIMS, "Z": 9}) == TABLE.fingerprint(DIMS)


def test_missing_symbol_is_named() -> None:
    with pytest.raises(ValueError, match="lacks 'D'"):
        TABLE.size_bytes({"E": 5})


def test_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="E must be >= 0, got -1"):
        TABLE.size_bytes({"E": -1, "D": 2})


def test_absurd_size_is_refused_instead_of_allocated() -> None:
    with pytest.raises(ValueError, match="beyond the limit"):
        TABLE.size_bytes({"E": 1 << 50, "D": 2})


def test_dtypes_must_state_their_byte_order() -> None:
    with pytest.raises(ValueError, match="byte order"):
        Layout("bad", 1, (Field("x", "f4", (), "a", "?"),))


def test_line_words_must_be_8_bytes() -> None:
    with pytest.raises(ValueError, match="8 bytes"):
        Layout("bad", 1, (Field("x", "<i4", (), "a", "?", line=True),))


def test_duplicate_fields_are_refused() -> None:
    field = Field("x", "<i8", (), "a", "?")
    with pytest.raises(ValueError, match="duplicate"):
        Layout("bad", 1, (field, field))


def test_render_lists_every_field_once() -> None:
    text = TABLE.render()
    assert [text.count(f"| `{field.name}` |") for field in TABLE.fields] == [1, 1, 1, 1]
    assert "[E, 3]" in text
