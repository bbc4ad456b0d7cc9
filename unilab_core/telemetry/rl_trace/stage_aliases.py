"""Which event marks which milestone, read from `stage_aliases.toml`.

The event name inside `detail` decides; stage and component names help where the name is unknown.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

ENV_ALIASES = "UNILAB_STAGE_ALIASES"
DEFAULT_FILE = Path(__file__).with_name("stage_aliases.toml")


class Milestone(IntEnum):
    """Milestones of a trajectory; the first `NUM_COLUMNS` are columns of the flow store."""

    DISPATCHED = 0
    RUN = 1
    GENERATION_START = 2
    FINISHED = 3
    REWARD = 4
    SAMPLED = 5
    LOGPROB = 6
    REF_LOGPROB = 7
    ADVANTAGE = 8
    TRAINED = 9
    DISPATCHED_INFERRED = 10
    """First event from the trainer to the agent worker, used where DISPATCHED is missing."""
    RUN_INFERRED = 11
    """First event from the agent worker, used where RUN is missing."""
    GENERATION_END = 12
    GENERATION = 13
    """A row that marks both edges of the generation."""
    GENERATED = 14
    SYNC = 15
    NONE = 16
    TRAINED_IF_COMPLETE = 17
    """TRAINED when the status column says COMPLETE."""


NUM_COLUMNS = 12
NO_DETAIL = "no detail"

_START_WORDS = frozenset({"start", "started", "begin", "began", "begun", "request", "submitted"})
_END_WORDS = frozenset(
    {"end", "ended", "finish", "finished", "done", "complete", "completed", "response", "returned"}
)
_EVENT = re.compile(r"(.*?)_(?:[a-z][a-z0-9_]*)=", re.DOTALL)
_WORDS = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class Alias:
    """One entry of the alias file; empty conditions always hold."""

    milestone: Milestone
    detail: str = ""
    stage: str = ""
    source: str = ""
    target: str = ""
    edge: str = ""

    def matches(self, stage: str, source: str, target: str, event: str, edge: str) -> bool:
        """Whether all conditions hold; `event` is a known event name or empty."""
        return (
            self.stage in ("", stage)
            and self.source in ("", source)
            and self.target in ("", target)
            and self.detail in ("", event)
            and (not self.edge or _edge_matches(self.edge, edge))
        )


@dataclass(frozen=True, slots=True)
class Classified:
    """What an event is."""

    milestone: Milestone
    inferred: Milestone
    known_stage: bool


class StageAliases:
    """The alias table; answers are remembered per event name, components and stage."""

    MAX_REMEMBERED = 20_000

    def __init__(self, aliases: tuple[Alias, ...]) -> None:
        self._aliases = aliases
        self._stages = frozenset(alias.stage for alias in aliases if alias.stage)
        events = {alias.detail for alias in aliases if alias.detail}
        self.are_plain = not any("=" in event for event in events)
        """No event name reaches into a value, so what follows the last `=` does not change it."""
        self._event_edges = {event: edge_of(event) for event in events}
        longest_first = sorted(events, key=lambda event: (-len(event), event))
        self._event = re.compile(
            "(" + "|".join(map(re.escape, longest_first)) + r")(?:$|_(?=[^=]*=))", re.DOTALL
        )
        self._remembered: dict[tuple[str, str, str, str, str], Classified] = {}

    def classify(self, stage: str, source: str, target: str, event: str, edge: str) -> Classified:
        """The milestone of an event, and the one that can be inferred from its components.

        `event` and `edge` are those of `event_of`.
        """
        key = (stage, source, target, event, edge)
        known = self._remembered.get(key)
        if known is None:
            if len(self._remembered) >= self.MAX_REMEMBERED:
                self._remembered.clear()
            known = self._remembered[key] = self._classify(*key)
        return known

    def _classify(self, stage: str, source: str, target: str, event: str, edge: str) -> Classified:
        milestone = Milestone.NONE
        for alias in self._aliases:
            if alias.matches(stage, source, target, event, edge):
                milestone = alias.milestone
                break
        if milestone is Milestone.NONE and stage == "TRAIN_UPDATE":
            milestone = Milestone.TRAINED_IF_COMPLETE
        if milestone is Milestone.NONE and edge == NO_DETAIL and stage == "ROLLOUT_REWARD":
            milestone = Milestone.REWARD
        inferred = Milestone.NONE
        if source == "AgentLoopWorker":
            inferred = Milestone.RUN_INFERRED
        elif target == "AgentLoopWorker" and source.startswith(("PPOTrainer", "AgentLoopManager")):
            inferred = Milestone.DISPATCHED_INFERRED
        known = not stage or stage in self._stages or milestone is not Milestone.NONE
        return Classified(milestone, inferred, known)

    def event_of(self, detail: str | None) -> tuple[str, str, str]:
        """Known event name or empty, the rest of the detail, and its edge."""
        if detail is None:
            return "", "", NO_DETAIL
        match = self._event.match(detail)
        if match is not None:
            event = match.group(1)
            return event, detail[match.end() :], self._event_edges[event]
        return "", detail, edge_of(detail)

    def split_detail(self, detail: str) -> tuple[str, str]:
        """Known event name and the rest (`key=value`); ("", detail) if it names none."""
        match = self._event.match(detail)
        return (match.group(1), detail[match.end() :]) if match else ("", detail)


def edge_of(detail: str) -> str:
    """`start`, `end` or empty: what the words of the event name say."""
    match = _EVENT.match(detail)
    words = _WORDS.findall((match.group(1) if match else detail[:200]).lower())
    if any(word in _START_WORDS for word in words):
        return "start"
    return "end" if any(word in _END_WORDS for word in words) else ""


@cache
def load_aliases(extra: str | None = None) -> StageAliases:
    """The shipped table, with a user's file (argument or UNILAB_STAGE_ALIASES) before it."""
    extra = extra or os.environ.get(ENV_ALIASES)
    entries = _entries(Path(extra)) if extra else ()
    return StageAliases((*entries, *_entries(DEFAULT_FILE)))


def _entries(path: Path) -> tuple[Alias, ...]:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    names = {
        milestone.name.lower(): milestone for milestone in Milestone if milestone <= Milestone.NONE
    }
    aliases = []
    for entry in table.get("event", ()):
        unknown = set(entry) - {"detail", "stage", "from", "to", "edge", "milestone"}
        if unknown or entry.get("milestone") not in names:
            raise ValueError(f"{path}: unknown key or milestone in {entry}")
        aliases.append(
            Alias(
                milestone=names[entry["milestone"]],
                detail=entry.get("detail", ""),
                stage=entry.get("stage", ""),
                source=entry.get("from", ""),
                target=entry.get("to", ""),
                edge=entry.get("edge", ""),
            )
        )
    return tuple(aliases)


def _edge_matches(wanted: str, edge: str) -> bool:
    return edge != "start" if wanted == "not_start" else edge == wanted
