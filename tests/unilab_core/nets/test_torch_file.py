"""Files of tensors: whole or refused."""

import os

import pytest
import torch

from unilab_core.nets.torch_file import DamagedFileError, read_torch_file, write_torch_file


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "a.pt"
    write_torch_file(path, {"weights": torch.arange(400.0), "name": "x", "n": 3})
    return path


def test_what_is_written_is_read_back(written):
    content = read_torch_file(written)
    assert torch.equal(content["weights"], torch.arange(400.0))
    assert (content["name"], content["n"]) == ("x", 3)


def test_plain_torch_load_opens_the_file_too(written):
    assert torch.load(written, weights_only=True)["n"] == 3


def test_no_temporary_file_is_left(written):
    assert os.listdir(written.parent) == ["a.pt"]


def test_every_flipped_byte_is_noticed(written):
    raw = written.read_bytes()
    for position in range(0, len(raw), 13):
        written.write_bytes(raw[:position] + bytes([raw[position] ^ 0x10]) + raw[position + 1 :])
        with pytest.raises(DamagedFileError):
            read_torch_file(written)


def test_every_truncation_is_noticed(written):
    raw = written.read_bytes()
    for length in range(0, len(raw), 29):
        written.write_bytes(raw[:length])
        with pytest.raises(DamagedFileError):
            read_torch_file(written)


def test_a_plain_torch_archive_is_not_ours(tmp_path):
    torch.save({"n": 3}, tmp_path / "b.pt")
    with pytest.raises(DamagedFileError, match="not a file of this project"):
        read_torch_file(tmp_path / "b.pt")


def test_an_object_that_would_run_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "pwned"),)

    write_torch_file(tmp_path / "c.pt", {"n": Evil()})
    with pytest.raises(DamagedFileError, match="not loadable"):
        read_torch_file(tmp_path / "c.pt")
    assert not (tmp_path / "pwned").exists()


def test_a_failing_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.pt"
    write_torch_file(path, {"n": 1})

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_torch_file(path, {"n": 2})
    monkeypatch.undo()
    assert read_torch_file(path)["n"] == 1
    assert os.listdir(tmp_path) == ["a.pt"]
