"""Names: run ids, shared-memory segments, jobs.

A segment is `/ul-<run id>-<two letters>-<rank>`: at most 30 bytes (the strictest platform limit is
31), unguessable, and never derived from what a user typed. A job name is what the user sees and
becomes a folder name, hence the narrow alphabet.
"""

import re
import secrets
from dataclasses import dataclass

MAX_SEGMENT_NAME_BYTES = 30
MAX_RANK = 999_999

KIND_LETTERS = {
    "heartbeat": "hb",
    "collector_metrics": "cm",
    "learner_metrics": "lm",
    "inference_slot": "is",
    "replay_ingress": "ri",
    "rollout_ring": "rr",
    "policy_snapshot": "ps",
}
"""Kinds that have a name of their own; the two metric rings of a rank share one layout."""

_KIND_OF_LETTERS = {letters: kind for kind, letters in KIND_LETTERS.items()}
_SEGMENT_NAME = re.compile(r"/?ul-([0-9a-f]{8})-([a-z]{2,3})-(0|[1-9][0-9]{0,5})", re.ASCII)
_JOB_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)


@dataclass(slots=True, frozen=True)
class SegmentName:
    """The parts of a segment name; `kind` is None for letters this version does not know."""

    run_id: str
    kind: str | None
    rank: int


def new_run_id() -> str:
    """8 random hex digits."""
    return secrets.token_hex(4)


def segment_name(run_id: str, kind: str, rank: int) -> str:
    """Name of the segment of `kind` (a key of KIND_LETTERS) for `rank`."""
    if kind not in KIND_LETTERS:
        raise ValueError(f"segment kind must be one of {sorted(KIND_LETTERS)}, got {kind!r}")
    if not re.fullmatch(r"[0-9a-f]{8}", run_id, re.ASCII):
        raise ValueError(f"run id must be 8 hex digits, got {run_id!r}")
    if not 0 <= rank <= MAX_RANK:
        raise ValueError(f"rank must be in [0, {MAX_RANK}], got {rank}")
    return f"/ul-{run_id}-{KIND_LETTERS[kind]}-{rank}"


def parse_segment_name(name: str) -> SegmentName | None:
    """The parts of one of our names (with or without the leading slash), else None."""
    match = _SEGMENT_NAME.fullmatch(name)
    if match is None:
        return None
    run_id, letters, rank = match.groups()
    return SegmentName(run_id, _KIND_OF_LETTERS.get(letters), int(rank))


def validate_job_name(name: str) -> str:
    """`name` itself if it is a valid job name; ValueError that says what is allowed otherwise."""
    if not _JOB_NAME.fullmatch(name) or ".." in name:
        shown = ascii(name[:80])
        raise ValueError(
            f"job name {shown} is not valid: use 1 to 64 of A-Z a-z 0-9 . _ -, "
            "not starting with a dot or dash, without '..'"
        )
    return name


def default_job_name(algo: str, task: str) -> str:
    """A fresh, valid job name that tells algorithm and task, e.g. `sac-go2_joystick_flat-1f2e`."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{algo}-{task}", flags=re.ASCII)
    stem = re.sub(r"\.{2,}", ".", stem).lstrip(".-") or "job"
    return validate_job_name(f"{stem[:59].rstrip('.')}-{secrets.token_hex(2)}")
