"""Trace directories made for tests, and the figures of one."""

from __future__ import annotations

import pytest

from unilab_core.telemetry.rl_trace.document import document
from unilab_core.telemetry.rl_trace.reader import ReaderSettings, TraceReader

SUFFIXES = {"progress": ".log", "sample": ".csv", "trajectory": ".jsonl"}


def write_files(root, folder, **files):
    """`name=text` for each file of a folder; the suffix is added."""
    for one in SUFFIXES:
        (root / one).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        (root / folder / f"{name.replace('_', '-')}{SUFFIXES[folder]}").write_bytes(data)
    return root


def read_all(root, **settings):
    reader = TraceReader(root, ReaderSettings(**settings))
    while not reader.poll(10.0):
        pass
    return reader


@pytest.fixture
def trace(tmp_path):
    """Write and read a trace directory: `trace.write(...)`, `trace.figures(...)`."""
    return TraceDirectory(tmp_path / "rl_trace")


class TraceDirectory:
    def __init__(self, root):
        self.root = root

    def write(self, folder="sample", **files):
        write_files(self.root, folder, **files)
        return self

    def append(self, folder, name, text):
        data = text if isinstance(text, bytes) else text.encode()
        with open(self.root / folder / f"{name.replace('_', '-')}{SUFFIXES[folder]}", "ab") as f:
            f.write(data)

    def read(self, **settings):
        return read_all(self.root, **settings)

    def figures(self, now_ms=None, **settings):
        return document(self.read(**settings).snapshot(now_ms))
