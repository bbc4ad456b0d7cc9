"""docs/faults-coverage.md: all 36 rows are there, and every test that it names exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "faults-coverage.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (F\d\d) \| [^|]+ \| (.+) \|$", TEXT, re.MULTILINE))
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`", TEXT)))


def test_every_row_of_the_fault_table_has_a_case_or_a_reason():
    assert list(ROWS) == [f"F{number:02}" for number in range(1, 37)]
    assert all(len(case) > 20 for case in ROWS.values())


def test_every_security_point_is_named_by_a_test():
    files = " ".join(path.read_text() for path in (ROOT / "tests" / "security").glob("test_*.py"))
    covered = {f"x{number:02}" for number in range(1, 17) if f"def test_x{number:02}_" in files}
    assert covered == {f"x{number:02}" for number in range(1, 17)}


@pytest.mark.parametrize(("path", "test"), NAMED, ids=[test or path for path, test in NAMED])
def test_a_test_that_the_table_names_exists(path, test):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    assert test == "" or test in functions


def test_enough_tests_are_named():
    assert len(NAMED) > 60
