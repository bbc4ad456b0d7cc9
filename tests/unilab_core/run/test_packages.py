"""Optional packages are found without importing them."""

import sys

from unilab_core.run.packages import is_installed


def test_a_package_is_found_and_not_imported(tmp_path, monkeypatch):
    (tmp_path / "surely_new.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(tmp_path)
    assert is_installed("surely_new")
    assert "surely_new" not in sys.modules


def test_a_missing_package_and_a_mere_folder_are_none(tmp_path, monkeypatch):
    (tmp_path / "only_a_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_installed("only_a_folder")
    assert not is_installed("nowhere_to_be_found")
