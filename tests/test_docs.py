"""Documentation that comes from code is what the code says."""

from __future__ import annotations

from pathlib import Path

from unilab_ipc.segments import render

ROOT = Path(__file__).resolve().parent.parent


def test_segment_tables_are_those_of_the_code():
    written = (ROOT / "docs" / "segments.md").read_text(encoding="utf-8")
    assert written == "# Shared-memory segments\n\n" + render(), "run `make docs`"
