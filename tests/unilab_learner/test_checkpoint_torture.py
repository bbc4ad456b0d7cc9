"""Saves that the kernel ends at a chosen byte, and files with any byte missing or wrong.

`RLIMIT_FSIZE` lets a process write exactly k bytes into a file: beyond them the write fails (EFBIG,
as a full disk does) or, with SIGXFSZ at its default, the kernel kills the process there.
"""

import os
import random
import resource
import signal

import pytest
import torch

from unilab_core.nets.torch_file import DamagedFileError, read_torch_file
from unilab_learner.checkpoint import CheckpointStore

STRIDE_BYTES = 97
"""Between two tried positions: coprime to the block sizes that writers like."""


def save(folder, iteration):
    content = {"learner": {"weights": torch.full((40,), float(iteration))}}
    return CheckpointStore(folder).save(content, iteration=iteration, mean_return=None)


def in_child(work):
    """Run `work` in a forked process; its wait status as an exit code."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = work() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def limited_save(folder, limit_bytes, *, deadly):
    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
        try:
            save(folder, 2)
        except OSError:
            return 28
        return 0

    return in_child(work)


@pytest.fixture
def size_bytes(tmp_path):
    return save(tmp_path, 1).stat().st_size


def test_a_save_killed_at_any_byte_leaves_the_previous_checkpoint(tmp_path, size_bytes):
    for limit_bytes in (*range(0, size_bytes, STRIDE_BYTES), size_bytes - 1):
        assert limited_save(tmp_path, limit_bytes, deadly=True) == -signal.SIGXFSZ, limit_bytes
        store = CheckpointStore(tmp_path)
        assert store.load(-1)["iteration"] == 1
        assert store.skipped == []


def test_a_save_that_runs_out_of_space_at_any_byte_leaves_no_trace(tmp_path, size_bytes):
    for limit_bytes in (*range(0, size_bytes, STRIDE_BYTES), size_bytes - 1):
        assert limited_save(tmp_path, limit_bytes, deadly=False) == 28, limit_bytes
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_00000001.pt"]
    assert limited_save(tmp_path, size_bytes, deadly=False) == 0
    assert CheckpointStore(tmp_path).load(-1)["iteration"] == 2


def test_a_file_truncated_at_any_byte_is_passed_over(tmp_path, size_bytes):
    newest = save(tmp_path, 2)
    raw = newest.read_bytes()
    for length in range(0, len(raw), 13):
        newest.write_bytes(raw[:length])
        store = CheckpointStore(tmp_path)
        assert store.load(-1)["iteration"] == 1
        assert len(store.skipped) == 1
        assert store.skipped[0].startswith("skipped checkpoint_00000002.pt: ")


def test_no_flipped_bit_anywhere_goes_unseen(tmp_path, size_bytes):
    path = tmp_path / "checkpoint_00000001.pt"
    raw = path.read_bytes()
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << at % 8)]) + raw[at + 1 :])
        with pytest.raises(DamagedFileError):
            read_torch_file(path)


def test_random_mutations_are_refused_and_never_anything_worse(tmp_path, size_bytes):
    path = tmp_path / "checkpoint_00000001.pt"
    raw, draw = path.read_bytes(), random.Random(6)
    for _ in range(1000):
        cut, paste = sorted(draw.sample(range(len(raw)), 2))
        mutated = draw.choice((raw[:cut] + raw[paste:], raw[:paste] + raw[cut:], raw[paste:] + raw))
        if mutated == raw:
            continue
        path.write_bytes(mutated)
        try:
            content = read_torch_file(path)
        except DamagedFileError:
            continue
        # Bytes put in front of a whole archive leave its trailer at the end: the length tells.
        raise AssertionError(f"accepted {len(mutated)} bytes: {list(content)}")


def test_many_files_of_which_any_one_is_good(tmp_path):
    for good in range(1, 6):
        folder = tmp_path / str(good)
        folder.mkdir()
        source = save(folder, good)
        whole = source.read_bytes()
        for iteration in range(1, 6):
            if iteration != good:
                damaged = whole[: iteration * 100]
                (folder / f"checkpoint_{iteration:08d}.pt").write_bytes(damaged)
        store = CheckpointStore(folder)
        assert store.load(-1)["iteration"] == good
        assert len(store.skipped) == 5 - good
