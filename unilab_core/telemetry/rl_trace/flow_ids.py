"""Numbers for jobs, prompts, trajectories and row contents, so that rows become columns.

A row's subject is one int32 code: a trajectory index >= 0, a prompt (`uid_code`) or everything of
a job (`job_code`).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from math import isfinite, nan

from unilab_core.telemetry.rl_trace.csv_rows import (
    parse_head,
    split_content,
    split_sample_id,
)
from unilab_core.telemetry.rl_trace.formats import Status
from unilab_core.telemetry.rl_trace.span_hash import hash_texts
from unilab_core.telemetry.rl_trace.stage_aliases import Milestone, StageAliases

BAD_CODE = -(2**31)
EVERYTHING_ID = b"*/sample"
_JOB_BASE = -(2**30)

STATUS_BITS = {
    Status.RUNNING.encode(): 0,
    Status.COMPLETE.encode(): 1,
    Status.FAILED.encode(): 2,
    Status.DISCARDED.encode(): 4,
    Status.CANCELLED.encode(): 8,
}
"""Bit that a status sets in a trajectory's flags; an unknown status sets none."""


def uid_code(uid: int) -> int:
    """Code of all trajectories of a prompt."""
    return -2 - uid


def job_code(job: int) -> int:
    """Code of everything of a job."""
    return _JOB_BASE - job


def uid_of_code(code: int) -> int:
    """Prompt of a `uid_code`."""
    return -2 - code


def is_job_code(code: int) -> bool:
    """Whether the row is about everything."""
    return code <= _JOB_BASE


def subject_key(job: bytes, sample_id: bytes) -> bytes:
    """A row up to its status column: what identifies the subject."""
    return job + b",sample," + sample_id


@dataclass(frozen=True, slots=True)
class EventClass:
    """What all rows with one head and one event name have in common."""

    milestone: Milestone
    inferred: Milestone
    stage: int
    step: int
    known: bool


CLASS_COLUMNS = ("milestone", "inferred", "stage", "step", "known")


@dataclass(slots=True)
class ContentTable:
    """Distinct contents; emptied when it grows too large."""

    event_class: array[int]
    """Row of `classes`."""
    value: array[float]
    """Score of a reward event, version of a synchronisation; NaN: none."""
    bad_value: array[int]
    """1: the value is written, but is no finite number."""
    ids: dict[int, int]
    """Hash of a content to its row."""
    classes: list[EventClass]
    class_columns: array[int]
    """Numbers of `CLASS_COLUMNS` of each class, one class after the other."""
    class_ids: dict[tuple[bytes, str, str], int]
    """(head, event name, edge) to the row of `classes`."""
    valued: dict[bytes, int]
    """Content of a known event up to its value to the row of `classes`: scores are many."""

    @classmethod
    def empty(cls) -> ContentTable:
        """A table without rows."""
        return cls(array("i"), array("d"), array("b"), {}, [], array("q"), {}, {})


class FlowIds:
    """All names seen so far."""

    MAX_CACHED_CONTENTS = 100_000

    def __init__(self, aliases: StageAliases, max_trajectories: int) -> None:
        self.jobs: dict[bytes, int] = {}
        self.codes: dict[int, int] = {}
        """Hash of a row up to its status column to the code of its subject."""
        self.uid_names: list[bytes] = []
        self.uid_jobs = array("i")
        self.trajectory_uids = array("i")
        self.trajectory_indices = array("q")
        self.stages: list[str] = []
        self.known_stages: list[bool] = []
        self.contents = ContentTable.empty()
        self.over_limit = 0
        self._uids: list[dict[bytes, int]] = []
        self._stage_ids: dict[str, int] = {}
        self._aliases = aliases
        self._max_trajectories = max_trajectories

    def job(self, name: bytes) -> int:
        """Number of a job."""
        number = self.jobs.get(name)
        if number is None:
            number = self.jobs[name] = len(self.jobs)
            self._uids.append({})
        return number

    def code(self, key_hash: int, job: int, sample_id: bytes) -> int:
        """Code of a subject, made on first sight; BAD_CODE if its id has no known form.

        `key_hash` is that of `subject_key(job name, sample_id)`.
        """
        code = self.codes.get(key_hash)
        if code is None:
            code = self._new_code(job, sample_id)
            if code != BAD_CODE:
                self.codes[key_hash] = code
        return code

    def _new_code(self, job: int, sample_id: bytes) -> int:
        if sample_id == EVERYTHING_ID:
            return job_code(job)
        parts = split_sample_id(sample_id)
        if parts is None:
            return BAD_CODE
        uid, index = parts
        if len(self.trajectory_uids) >= self._max_trajectories:
            self.over_limit += 1
            return BAD_CODE
        canonical = b"%s/%d" % (uid, index)
        if index >= 0 and canonical != sample_id:
            return self.code(self._key_hash(job, canonical), job, canonical)
        number = self._uids[job].get(uid)
        if number is None:
            number = self._uids[job][uid] = len(self.uid_names)
            self.uid_names.append(uid)
            self.uid_jobs.append(job)
        if index < 0:
            return uid_code(number)
        self.trajectory_uids.append(number)
        self.trajectory_indices.append(index)
        return len(self.trajectory_uids) - 1

    def _key_hash(self, job: int, sample_id: bytes) -> int:
        name = next(name for name, number in self.jobs.items() if number == job)
        return int(hash_texts([subject_key(name, sample_id)])[0])

    def find(self, job: int, names: list[str]) -> list[int]:
        """Codes of subjects (`<uid>/<n>`); BAD_CODE for those not seen."""
        if not names or job < 0:
            return [BAD_CODE] * len(names)
        name = next(name for name, number in self.jobs.items() if number == job)
        texts = [one.encode("utf-8", "surrogateescape") for one in names]
        hashes = hash_texts([subject_key(name, text) for text in texts])
        return [self.codes.get(one, BAD_CODE) for one in hashes.tolist()]

    def find_uid(self, job: int, uid: str) -> int:
        """Number of a prompt that was seen; -1 otherwise."""
        return self._uids[job].get(uid.encode("utf-8", "surrogateescape"), -1)

    def trajectory_name(self, index: int) -> str:
        """`<uid>/<n>` of a trajectory."""
        uid = self.uid_names[self.trajectory_uids[index]].decode("utf-8", "replace")
        return f"{uid}/{self.trajectory_indices[index]}"

    def content(self, content_hash: int, content: bytes) -> int:
        """Row of the content table, made on first sight."""
        table = self.contents
        number = table.ids.get(content_hash)
        if number is not None:
            return number
        before, equals, text = content.rpartition(b"=")
        class_id = table.valued.get(before) if equals else None
        if class_id is None:
            head, detail = split_content(content)
            event, rest, edge = self._aliases.event_of(detail)
            class_id = table.class_ids.get((head, event, edge))
            if class_id is None:
                class_id = self._new_class(head, event, edge)
            if event and rest.count("=") == 1 and self._aliases.are_plain:
                table.valued[before] = class_id
        else:
            rest = f"={text.decode('utf-8', 'replace')}"
        one = table.classes[class_id]
        value, bad = nan, False
        if one.milestone in (Milestone.REWARD, Milestone.SYNC):
            value, bad = _value(one, rest)
        number = table.ids[content_hash] = len(table.value)
        table.event_class.append(class_id)
        table.value.append(value)
        table.bad_value.append(bad)
        return number

    def trim_contents(self) -> None:
        """Forget distinct contents when there are many; only between batches."""
        if len(self.contents.value) > self.MAX_CACHED_CONTENTS:
            self.contents = ContentTable.empty()

    def _new_class(self, head_bytes: bytes, event: str, edge: str) -> int:
        table = self.contents
        head = parse_head(head_bytes.decode("utf-8", "replace"))
        what = self._aliases.classify(head.stage, head.source, head.target, event, edge)
        number = table.class_ids[head_bytes, event, edge] = len(table.classes)
        stage = self._stage(head.stage, what.known_stage)
        one = EventClass(what.milestone, what.inferred, stage, head.global_step, what.known_stage)
        table.classes.append(one)
        table.class_columns.extend((one.milestone, one.inferred, one.stage, one.step, one.known))
        return number

    def _stage(self, name: str, known: bool) -> int:
        number = self._stage_ids.get(name)
        if number is None:
            if len(self.stages) >= 10_000:  # not a stage name any more
                return self._stage("(other)", False)
            number = self._stage_ids[name] = len(self.stages)
            self.stages.append(name)
            self.known_stages.append(known)
        return number


def _value(one: EventClass, rest: str) -> tuple[float, bool]:
    """The number after `<key>=` of a detail, and whether it is written but is none."""
    _, equals, text = rest.partition("=")
    try:
        value = float(text.strip()) if equals else nan
    except ValueError:
        value = nan
    if isfinite(value):
        return value, False
    return (float(one.step) if one.milestone is Milestone.SYNC else nan), bool(equals)
