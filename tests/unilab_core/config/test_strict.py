"""Plain values into dataclasses: nothing guessed, every error names its key."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from unilab_core.config.errors import ConfigError
from unilab_core.config.strict import convert, dataclass_from_dict, declared_keys, to_plain


@dataclass(kw_only=True, slots=True, frozen=True)
class Inner:
    width: int = 3


@dataclass(kw_only=True, slots=True, frozen=True)
class Outer:
    name: str
    rate: float = 1.0
    mode: Literal["a", "b"] = "a"
    threads: int | Literal["auto"] = "auto"
    scale: int | float | None = None
    sizes: tuple[int, ...] = ()
    inner: Inner = field(default_factory=Inner)


def test_an_int_is_accepted_for_a_float_and_a_list_for_a_tuple():
    built = dataclass_from_dict(Outer, {"name": "x", "rate": 2, "sizes": [1, 2]}, "s")
    assert built.rate == 2.0
    assert isinstance(built.rate, float)
    assert built.sizes == (1, 2)


def test_a_union_keeps_an_int_an_int():
    built = dataclass_from_dict(Outer, {"name": "x", "scale": 2}, "s")
    assert built.scale == 2
    assert isinstance(built.scale, int)


def test_plain_values_round_trip():
    built = Outer(name="x", sizes=(1,), inner=Inner(width=9))
    plain = to_plain(built)
    assert plain["sizes"] == [1]
    assert plain["inner"] == {"width": 9}
    assert dataclass_from_dict(Outer, plain, "s") == built


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "s.name: missing, expected text"),
        ({"name": 3}, "s.name: got 3 (int), expected text"),
        ({"name": "x", "rate": True}, "s.rate: got True (bool), expected float"),
        ({"name": "x", "rate": "1"}, "s.rate: got '1' (str), expected float"),
        ({"name": "x", "mode": "c"}, "s.mode: unknown value 'c'"),
        ({"name": "x", "mode": 1}, "s.mode: got 1 (int), expected one of a, b"),
        ({"name": "x", "threads": "all"}, "s.threads: got 'all' (str), expected int or one of"),
        ({"name": "x", "sizes": [1, "2"]}, "s.sizes[1]: got '2' (str), expected int"),
        ({"name": "x", "sizes": 3}, "s.sizes: got 3 (int), expected a list of int"),
        ({"name": "x", "inner": {"widht": 1}}, "unknown key 's.inner.widht'; nearest: s.inner"),
        ({"name": "x", "inner": None}, "s.inner: expected a section of keys, got null"),
    ],
)
def test_a_wrong_value_names_its_full_key(data, message):
    with pytest.raises(ConfigError) as caught:
        dataclass_from_dict(Outer, data, "s")
    assert message in str(caught.value)


def test_open_mappings_convert_their_items():
    assert convert({"a": 1}, dict[str, float], "s") == {"a": 1.0}
    assert convert({"a": [1]}, dict[str, Any], "s") == {"a": [1]}
    with pytest.raises(ConfigError, match=r"s.a: got 'x'"):
        convert({"a": "x"}, dict[str, float], "s")


def test_declared_keys_reach_into_sections():
    assert "s.inner.width" in declared_keys(Outer, "s")
    assert "s.inner" not in declared_keys(Outer, "s")
