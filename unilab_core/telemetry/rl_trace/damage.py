"""Counters of damaged input: one set per file, summed for the page and the document.

Nothing in a trace can make the reader raise; what it cannot use it counts here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields


@dataclass(slots=True)
class Damage:
    """How often each kind of damage was met."""

    torn: int = 0
    """Last line without its end, in a run that has ended."""
    continuation: int = 0
    """Lines that continue the detail of the row before."""
    malformed: int = 0
    """Lines that are neither a row nor a continuation."""
    glued: int = 0
    """Two rows on one line."""
    duplicate: int = 0
    """The same row again, in whichever file."""
    unit_fixed: int = 0
    """Timestamps in s, us or ns instead of ms."""
    negative: int = 0
    """Durations below -50 ms (clocks that disagree)."""
    unknown_stage: int = 0
    """Rows with a stage that no alias knows."""
    inner_bad: int = 0
    """Trajectory lines whose inner JSON is damaged."""
    nul: int = 0
    """Lines with NUL bytes (holes of a network file system)."""
    nan: int = 0
    """Numbers that are not finite."""
    outlier: int = 0
    """Times in the future or before 2001."""
    noise: int = 0
    """Progress lines of no known form."""
    ignored_files: int = 0
    """Foreign files in the directory."""
    oversize: int = 0
    """Lines longer than the reader's limit."""
    unreadable: int = 0
    """Files that could not be opened or read."""
    rewritten: int = 0
    """Files that shrank or were replaced: everything is read again."""
    over_limit: int = 0
    """Records beyond the reader's memory limits."""

    def add(self, other: Damage) -> None:
        """Add the counts of another set."""
        for name in DAMAGE_NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def as_dict(self) -> dict[str, int]:
        """Name to count, in the order of declaration."""
        return {name: getattr(self, name) for name in DAMAGE_NAMES}


DAMAGE_NAMES = tuple(field.name for field in fields(Damage))
DAMAGE_MEANING = {
    "torn": "unfinished last lines of an ended run",
    "continuation": "lines joined to the row before them",
    "malformed": "lines that are no row",
    "glued": "two rows on one line, split",
    "duplicate": "rows seen before, dropped",
    "unit_fixed": "timestamps not in milliseconds, converted",
    "negative": "negative durations left out (clock skew)",
    "unknown_stage": "rows of stages without an alias",
    "inner_bad": "trajectories with damaged inner JSON",
    "nul": "lines with NUL bytes",
    "nan": "numbers that are not finite, shown as n/a",
    "outlier": "times in the future or before 2001, left out",
    "noise": "progress lines of no known form",
    "ignored_files": "foreign files",
    "oversize": "lines beyond the length limit, skipped",
    "unreadable": "files that could not be read",
    "rewritten": "files that shrank or were replaced",
    "over_limit": "records beyond the memory limits",
}


def total(parts: Iterable[Damage]) -> Damage:
    """The sum of several sets."""
    result = Damage()
    for part in parts:
        result.add(part)
    return result
