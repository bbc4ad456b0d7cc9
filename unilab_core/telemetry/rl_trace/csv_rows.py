"""Grammar of one sample-flow row, tolerant of the damage that shared file systems cause.

`<job>,<cat>,<uid>/<n>,<status>,<timestamp>,<key=value|...|detail=...>`; the detail is the rest of
the line, verbatim. Bytes in, so that a row of any encoding has an identity.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

HEADER = b"job_id,cat,sample_id"
MAX_INDEX_DIGITS = 18
CONTENT_KEYS = ("from", "to", "stage", "global_step", "detail")

_ROW = re.compile(
    rb"([^,\s][^,]*),([A-Za-z_][\w.-]*),([^,]*),([A-Za-z_]+),\s*(\d{1,19})(\.\d+)?\s*,(.*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One parsed row."""

    job: bytes
    cat: bytes
    sample_id: bytes
    status: bytes
    """Upper case."""
    unix_ms: int
    unit_fixed: bool
    content: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """The last column up to the detail."""

    source: str
    target: str
    stage: str
    global_step: int
    """-1: absent or not a number."""
    extra: dict[str, str]


@dataclass(frozen=True, slots=True)
class Content:
    """The last column, taken apart."""

    head: Head
    detail: str | None


def parse_row(line: bytes) -> Row | None:
    """A row, or None if the line is not one."""
    match = _ROW.fullmatch(line)
    if match is None:
        return None
    job, cat, sample_id, status, whole, fraction, content = match.groups()
    unix_ms, unit_fixed = to_unix_ms(int(whole), fraction)
    return Row(job, cat, sample_id, status.upper(), unix_ms, unit_fixed, unquote(content))


def to_unix_ms(whole: int, fraction: bytes | None) -> tuple[int, bool]:
    """Milliseconds from a number in s, ms, us or ns, and whether it had another unit."""
    if whole < 10**11:
        return whole * 1000 + round(float(fraction or 0) * 1000), True
    if whole < 10**14:
        return whole, False
    return (whole // 1000 if whole < 10**17 else whole // 1_000_000), True


def split_sample_id(sample_id: bytes) -> tuple[bytes, int] | None:
    """(uid, index), with index -1 for all trajectories of the uid; None if it is neither."""
    uid, _, rest = sample_id.rpartition(b"/")
    if not uid:
        return None
    if rest.isdigit() and len(rest) <= MAX_INDEX_DIGITS:
        return uid, int(rest)
    return (uid, -1) if rest == b"sample" else None


def unquote(content: bytes) -> bytes:
    """A CSV-quoted last column without its quotes; a missing closing quote is forgiven."""
    if not content.startswith(b'"'):
        return content
    return content[1:].removesuffix(b'"').replace(b'""', b'"')


def split_content(content: bytes) -> tuple[bytes, str | None]:
    """The part before the detail, and the detail, which is everything after it."""
    if content.startswith(b"detail="):
        return b"", content[len(b"detail=") :].decode("utf-8", "replace")
    head, mark, rest = content.partition(b"|detail=")
    return head, rest.decode("utf-8", "replace") if mark else None


def parse_content(content: bytes) -> Content:
    """The last column, taken apart."""
    head, detail = split_content(content)
    return Content(parse_head(head.decode("utf-8", "replace")), detail)


def parse_head(head: str) -> Head:
    """Parts are split at `|` and at their first `=`; the first of equal keys wins."""
    fields: dict[str, str] = {}
    for part in head.split("|") if head else ():
        key, _, value = part.partition("=")
        fields.setdefault(key, value)
    step = fields.get("global_step", "")
    return Head(
        source=fields.get("from", ""),
        target=fields.get("to", ""),
        stage=fields.get("stage", ""),
        global_step=int(step) if step.isascii() and step.isdigit() and len(step) < 16 else -1,
        extra={key: value for key, value in fields.items() if key not in CONTENT_KEYS},
    )


def glued_at(line: bytes, jobs: Iterable[bytes]) -> int:
    """Where a second row begins inside a line; 0 if there is none."""
    first = line.partition(b",")[0]
    best = 0
    for job in {first, *jobs}:
        if not job:
            continue
        pattern = re.escape(job) + rb",sample,[^,|]*/[^,|]*,[A-Za-z]+,\d{9,19}[.,]"
        match = re.search(pattern, line[1:])
        if match is not None and (best == 0 or match.start() + 1 < best):
            best = match.start() + 1
    return best
