"""JSON files are whole or absent, and hold only what JSON has words for."""

import json
import math

import pytest

from unilab_core.run.json_files import read_json, write_json_atomic


def test_values_that_are_not_finite_become_null(tmp_path):
    path = tmp_path / "a.json"
    write_json_atomic(path, {"a": math.nan, "b": [1.5, math.inf], "c": {"d": -math.inf}})
    assert json.loads(path.read_text()) == {"a": None, "b": [1.5, None], "c": {"d": None}}


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path):
    path = tmp_path / "a.json"
    write_json_atomic(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json_atomic(path, {"a": object()})
    assert read_json(path) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '"x"'])
def test_what_is_not_an_object_reads_as_none(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    assert read_json(path) is None


def test_an_absent_file_reads_as_none(tmp_path):
    assert read_json(tmp_path / "absent.json") is None
