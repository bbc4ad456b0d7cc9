"""Grammar of one progress line. Foreign lines are normal and answer None."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from math import isfinite


class Kind(IntEnum):
    """Forms of a progress line."""

    TOTAL = 0
    HEADER = 1
    ROLLOUT_STARTED = 2
    ROLLOUT_FINISHED = 3
    TRAIN_STARTED = 4
    TRAIN_FINISHED = 5
    STAGE_START = 6
    STAGE_END = 7
    LOAD_TRY = 8
    LOAD_DONE = 9
    TASK = 10
    THROUGHPUT = 11


@dataclass(frozen=True, slots=True)
class ProgressLine:
    """One parsed line."""

    kind: Kind
    number: int = 0
    """Step, total or batch; the trajectory index of TASK."""
    text: str = ""
    """Stage name, or uid of TASK."""
    disagg: bool = False
    value: float | None = None
    """Score of TASK, tokens/s of THROUGHPUT."""
    status: str = ""
    bad_value: bool = False
    """The score is written, but is no finite number."""
    epoch: int | None = None
    batch: int | None = None
    chunk: tuple[int, int] | None = None


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_INT = r"(\d{1,15})"
_TOTAL = re.compile(rf"Total training steps:\s*{_INT}")
_HEADER = re.compile(rf"=+ .*?\bStep\s+{_INT}\b(.*)")
_EPOCH = re.compile(rf"Epoch\D{{0,3}}{_INT}")
_BATCH = re.compile(rf"[Bb]atch\D{{0,12}}{_INT}")
_WINDOW = re.compile(rf"Step {_INT} (rollout|train) (started|finished)")
_STAGE = re.compile(r"(disagg:\s*)?(start|end) ([a-z][a-z0-9_/-]*(?: [a-z0-9_/-]+){0,4})")
_LOAD = re.compile(
    rf"Trainer: (try to|successfully) load global batch@{_INT}"
    rf"(?:, chunk\[{_INT}/{_INT}\])?(?: from .*)?"
)
_TASK = re.compile(rf"Task (.+)/{_INT} is completed, score=(\S*) status=(\S+)")
_THROUGHPUT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*tok(?:en)?s?/s")
_WINDOWS = {
    ("rollout", "started"): Kind.ROLLOUT_STARTED,
    ("rollout", "finished"): Kind.ROLLOUT_FINISHED,
    ("train", "started"): Kind.TRAIN_STARTED,
    ("train", "finished"): Kind.TRAIN_FINISHED,
}


def parse_progress_line(raw: bytes) -> ProgressLine | None:
    """The event of a line; None if it is of no known form. Blank lines are no event either."""
    text = raw.decode("utf-8", "replace").lstrip("\ufeff").replace("\0", "")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    for piece in text.split("\r") if "\r" in text else (text,):
        found = _parse(piece.strip())
        if found is not None:
            return found
    return None


def _parse(text: str) -> ProgressLine | None:
    if match := _STAGE.fullmatch(text):
        kind = Kind.STAGE_START if match.group(2) == "start" else Kind.STAGE_END
        return ProgressLine(kind, text=match.group(3), disagg=match.group(1) is not None)
    if text.startswith("Task ") and (match := _TASK.fullmatch(text)):
        return _task(match)
    if text.startswith("Step ") and (match := _WINDOW.fullmatch(text)):
        return ProgressLine(_WINDOWS[match.group(2), match.group(3)], int(match.group(1)))
    if text.startswith("=") and (match := _HEADER.match(text)):
        epoch, batch = _EPOCH.search(text), _BATCH.search(text)
        return ProgressLine(
            Kind.HEADER,
            int(match.group(1)),
            epoch=int(epoch.group(1)) if epoch else None,
            batch=int(batch.group(1)) if batch else None,
        )
    if text.startswith("Trainer: ") and (match := _LOAD.fullmatch(text)):
        kind = Kind.LOAD_TRY if match.group(1) == "try to" else Kind.LOAD_DONE
        chunk = None
        if match.group(3) is not None:
            chunk = int(match.group(3)), int(match.group(4))
        return ProgressLine(kind, int(match.group(2)), chunk=chunk)
    if match := _TOTAL.fullmatch(text):
        return ProgressLine(Kind.TOTAL, int(match.group(1)))
    if "/s" in text and "%|" not in text and (match := _THROUGHPUT.search(text)):
        return ProgressLine(Kind.THROUGHPUT, value=float(match.group(1)))
    return None


def _task(match: re.Match[str]) -> ProgressLine:
    uid, index, score_text, status = match.groups()
    score: float | None
    try:
        score = float(score_text)
    except ValueError:
        score = None
    bad = score is not None and not isfinite(score)
    return ProgressLine(
        Kind.TASK,
        int(index),
        text=uid,
        value=None if bad else score,
        status=status,
        bad_value=bad,
    )
