"""X05: no name that a user or a file gives leads out of its folder."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unilab_core.run.failures import RunDirError
from unilab_core.tools.policy_source import find_policy
from unilab_ipc.names import (
    MAX_RANK,
    MAX_SEGMENT_NAME_BYTES,
    default_job_name,
    parse_segment_name,
    segment_name,
    validate_job_name,
)

NASTY = [
    "../",
    "..",
    "~",
    "~root",
    "%2e%2e",
    "/",
    "\0",
    "\n",
    "con",
    "-rf",
    ".",
    "\u202e",
    "é",
    "a" * 70,
]
NAMES = st.text() | st.lists(st.sampled_from([*NASTY, "a", "-", "_"]), max_size=6).map("".join)


@settings(max_examples=400, deadline=None)
@given(NAMES)
def test_x05_a_job_name_is_refused_or_stays_one_plain_path_component(name):
    try:
        accepted = validate_job_name(name)
    except ValueError as error:
        text = str(error)
        assert text.isascii()
        assert "\n" not in text
        assert len(text) < 500
        return
    root = Path("/registry")
    assert accepted == name
    assert (root / accepted).resolve().parent == root
    assert 1 <= len(accepted.encode()) <= 64
    assert not accepted.startswith((".", "-"))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=80), st.text(max_size=300))
def test_x05_a_default_name_is_valid_whatever_the_task_is_called(algo, task):
    validate_job_name(default_job_name(algo, task))


@settings(max_examples=150, deadline=None)
@given(
    st.from_regex(r"[0-9a-f]{8}", fullmatch=True),
    st.sampled_from(["heartbeat", "replay_ingress", "rollout_ring", "policy_snapshot"]),
    st.integers(0, MAX_RANK),
)
def test_x05_segment_names_are_short_and_lead_back_to_their_parts(run_id, kind, rank):
    name = segment_name(run_id, kind, rank)
    assert len(name.encode()) <= MAX_SEGMENT_NAME_BYTES
    assert name.count("/") == 1
    parsed = parse_segment_name(name)
    assert (parsed.run_id, parsed.kind, parsed.rank) == (run_id, kind, rank)


@settings(max_examples=150, deadline=None)
@given(NAMES)
def test_x05_what_is_not_a_segment_name_of_ours_does_not_parse(name):
    parsed = parse_segment_name(name)
    if parsed is not None:
        assert name.lstrip("/").startswith("ul-")
        assert name.count("/") <= 1


@pytest.mark.parametrize("name", ["../../outside", "../run/policy", "/etc/passwd", "a/b"])
def test_x05_a_checkpoint_is_a_name_and_not_a_path(tmp_path, name):
    (tmp_path / "outside.pt").write_bytes(b"x")
    run_dir = tmp_path / "run"
    (run_dir / "checkpoints").mkdir(parents=True)
    (run_dir / "policy.pt").write_bytes(b"x")
    with pytest.raises(RunDirError, match="a file name"):
        find_policy(run_dir, name)
