"""Rules that every segment table obeys."""

import mmap

import numpy as np
import pytest

from unilab_ipc.layout import Layout
from unilab_ipc.segments import INFERENCE_SLOT, SEGMENTS, render

SIZES = {"E": 3, "O": 5, "C": 7, "A": 2, "R": 3, "L": 4, "D": 2, "T": 4, "T1": 5}
SIZES |= {"P": 11, "B": 1024, "N": 3}


@pytest.mark.parametrize("layout", SEGMENTS, ids=lambda layout: layout.kind)
def test_every_word_is_8_byte_aligned_and_alone_on_its_line(layout: Layout) -> None:
    memory = mmap.mmap(-1, layout.size_bytes(SIZES))
    base = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    lines: list[int] = []
    for field in layout.fields:
        if np.dtype(field.dtype).itemsize != 8:
            continue
        assert field.line, f"{field.name} shares a cache line"
        array = layout.views(memory, SIZES)[field.name]
        start = array.__array_interface__["data"][0] - base
        for index in range(array.size):
            at = start + index * 64
            assert at % 8 == 0
            lines.append(at // 64)
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("layout", SEGMENTS, ids=lambda layout: layout.kind)
def test_every_field_has_one_writer_and_a_meaning(layout: Layout) -> None:
    for field in layout.fields:
        assert field.writer
        assert " or " not in field.writer
        assert field.doc


def test_kinds_are_distinct() -> None:
    assert len({layout.kind for layout in SEGMENTS}) == len(SEGMENTS)


def test_slot_size_by_hand() -> None:
    dims = {"E": 64, "O": 48, "C": 60, "A": 12, "R": 0, "L": 0}
    words = 64 + 5 * 64
    assert INFERENCE_SLOT.size_bytes(dims) == (words + 64 * 48 * 4 + 64 * 60 * 4 + 64 + 64 * 12 * 4)


def test_render_shows_all_tables() -> None:
    text = render()
    for layout in SEGMENTS:
        assert f"**{layout.kind}** (version {layout.version})" in text
