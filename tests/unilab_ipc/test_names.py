"""Segment names and job names."""

import pytest

from unilab_ipc.names import (
    KIND_LETTERS,
    SegmentName,
    default_job_name,
    new_run_id,
    parse_segment_name,
    segment_name,
    validate_job_name,
)


def test_segment_names_are_short_and_parse_back() -> None:
    for kind in KIND_LETTERS:
        name = segment_name("0123abcd", kind, 999_999)
        assert len(name) <= 30
        assert parse_segment_name(name) == SegmentName("0123abcd", kind, 999_999)
        assert parse_segment_name(name[1:]) == SegmentName("0123abcd", kind, 999_999)


def test_segment_name_by_hand() -> None:
    assert segment_name("1f2e3d4c", "inference_slot", 3) == "/ul-1f2e3d4c-is-3"


def test_kinds_have_distinct_letters() -> None:
    assert len(set(KIND_LETTERS.values())) == len(KIND_LETTERS)


def test_run_ids_are_fresh() -> None:
    assert len({new_run_id() for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    "name",
    [
        "",
        "ul-0123abc-is-0",
        "ul-0123abcg-is-0",
        "ul-0123ABCD-is-0",
        "ul-0123abcd-is-00",
        "ul-0123abcd-is-0 ",
        "ul-0123abcd-is-0\n",
        "ul-0123abcd-isss-0",
        "xul-0123abcd-is-0",
        "sem.ul-0123abcd-is-0",
        "ul-0123abcd-is-٣",
    ],
)
def test_names_of_others_do_not_parse(name: str) -> None:
    assert parse_segment_name(name) is None


def test_unknown_letters_of_a_later_version_still_parse() -> None:
    assert parse_segment_name("ul-0123abcd-zz-1") == SegmentName("0123abcd", None, 1)


@pytest.mark.parametrize(
    ("run_id", "kind", "rank"),
    [("0123", "heartbeat", 0), ("0123abcd", "queue", 0), ("0123abcd", "heartbeat", -1)],
)
def test_bad_parts_are_refused(run_id: str, kind: str, rank: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        segment_name(run_id, kind, rank)


@pytest.mark.parametrize("name", ["a", "go2-1", "A.b_c-9", "_x", "x" * 64, "1"])
def test_good_job_names_pass_unchanged(name: str) -> None:
    assert validate_job_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".hidden",
        "-dash",
        "a..b",
        "a/b",
        "../a",
        "~",
        "a b",
        "a\n",
        "a\0",
        "x" * 65,
        "x" * 10_000,
        "%2e%2e",
        "ünïcode",
        "a\u202eb",
        "..",
        "٣",
    ],
)
def test_bad_job_names_are_refused_with_the_rule(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 64") as caught:
        validate_job_name(name)
    assert str(caught.value).isascii()
    assert "\n" not in str(caught.value)


def test_default_job_names_are_valid_and_fresh() -> None:
    tasks = ["go2_joystick_flat", "gym:Pendulum-v1", "../../etc", "x" * 200, "a..b", ""]
    for task in tasks:
        assert validate_job_name(default_job_name("sac", task))
    assert default_job_name("sac", "gym:Pendulum-v1").startswith("sac-gym_Pendulum-v1-")
    assert len({default_job_name("sac", "t") for _ in range(50)}) > 40
