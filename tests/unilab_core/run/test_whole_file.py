"""Files appear when they are complete, whatever happens to their writer."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from unilab_core.run.whole_file import whole_file

KILLED = """
import os, signal, sys
from pathlib import Path
from unilab_core.run.whole_file import whole_file
with whole_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(params=["nameless", "hidden"])
def kind(request, monkeypatch):
    """Both ways: the second is that of file systems without nameless files."""
    if request.param == "hidden":
        really = os.open

        def refuse(path, flags, mode=0o777, **options):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "no nameless files here")
            return really(path, flags, mode, **options)

        monkeypatch.setattr(os, "open", refuse)
    return request.param


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_has_its_name_from_the_end_of_the_block_on(tmp_path, kind):
    path = tmp_path / "a"
    for content in (b"first", b"second"):
        before = path.read_bytes() if path.exists() else None
        with whole_file(path) as file:
            file.write(content)
            assert (path.read_bytes() if path.exists() else None) == before
            others = [name for name in names(tmp_path) if name != "a"]
            assert len(others) == (kind == "hidden")
        assert path.read_bytes() == content
        assert names(tmp_path) == ["a"]


def write(path, error=None):
    with whole_file(path) as file:
        file.write(b"new")
        if error is not None:
            raise error


def test_what_goes_wrong_leaves_the_old_file_and_nothing_else(tmp_path, kind, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="disk full"):
        write(path, OSError("disk full"))

    def refuse(fd):
        raise OSError("no sync")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="no sync"):
            write(path)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_permissions_are_those_asked_for_less_the_umask(tmp_path, kind):
    before = os.umask(0o027)
    try:
        for mode, expected in ((0o666, 0o640), (0o644, 0o640), (0o600, 0o600)):
            with whole_file(tmp_path / oct(mode), mode) as file:
                file.write(b"x")
            assert (tmp_path / oct(mode)).stat().st_mode & 0o777 == expected
    finally:
        os.umask(before)


def test_a_missing_folder_is_an_error_that_names_it(tmp_path, kind):
    with pytest.raises(FileNotFoundError, match="absent"), whole_file(tmp_path / "absent" / "a"):
        pass


def test_a_writer_that_is_killed_leaves_nothing(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    with whole_file(tmp_path / "probe") as file:
        is_nameless = len(names(tmp_path)) == 1
        file.write(b"x")
    if not is_nameless:
        pytest.skip("the file system of the tests has no nameless files")
    assert names(tmp_path) == ["a", "probe"]
