"""One trajectory as the page shows it: absent figures are None, oddities are named.

Trajectory times are Unix seconds and durations milliseconds, as in the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

MAX_TURNS = 100_000
MAX_INTEGER = 2**62


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool."""

    name: str
    args: str
    ok: bool | None
    error: str | None
    ms: float | None


@dataclass(frozen=True, slots=True)
class TurnView:
    """One round of model and environment."""

    index: int
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: str | None
    completion: str | None
    observation: str | None
    start_s: float | None
    end_s: float | None
    total_ms: float | None
    model_ms: float | None
    env_ms: float | None
    queue_ms: float | None
    ttft_ms: float | None
    prefill_ms: float | None
    decode_ms: float | None
    engine_other_ms: float | None
    """Model time that is neither queue, prefill nor decode; None without an engine break-down."""
    template_tokens: int | None
    tool_calls: tuple[ToolCall, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrajectoryView:
    """One trajectory."""

    uid: str
    index: int
    inner_ok: bool
    request_id: str | None
    n_samples: int | None
    global_step: int | None
    created_s: float | None
    completed_s: float | None
    total_ms: float | None
    model_ms: float | None
    env_ms: float | None
    unattributed_ms: float | None
    """Total time outside the turns."""
    reward: float | None
    num_preempted: int | None
    prompt_tokens: int | None
    completion_tokens: int | None
    initial_prompt: str | None
    turns: tuple[TurnView, ...]
    flags: tuple[str, ...]

    @property
    def id(self) -> str:
        """`<uid>/<n>`."""
        return f"{self.uid}/{self.index}"


def trajectory_view(outer: dict[str, Any], inner: dict[str, Any] | None) -> TrajectoryView | None:
    """The view of a parsed line; None without its ids."""
    ids = _ids(outer)
    if ids is None:
        return None
    uid, index = ids
    message = inner or {}
    metrics = _metrics(message)
    turns, flags = _turns(message.get("turns"))
    total_ms = _number(message.get("total_time_ms"))
    turns_ms = _sum(turn.total_ms for turn in turns)
    model_ms = _sum(turn.model_ms for turn in turns)
    env_ms = _sum(turn.env_ms for turn in turns)
    rest_ms = None
    if total_ms is not None and turns_ms is not None:
        rest_ms = round(max(total_ms - turns_ms, 0.0), 6)
    return TrajectoryView(
        uid=uid,
        index=index,
        inner_ok=inner is not None,
        request_id=_text(message.get("request_id")),
        n_samples=_integer(message.get("n_samples")),
        global_step=_integer(message.get("global_step")),
        created_s=_number(message.get("created_at_ts")),
        completed_s=_number(message.get("completed_at_ts")),
        total_ms=total_ms,
        model_ms=_first(model_ms, _times(metrics.get("generate_sequences"), 1000.0)),
        env_ms=_first(env_ms, _times(metrics.get("tool_calls"), 1000.0)),
        unattributed_ms=rest_ms,
        reward=_number(metrics.get("reward_score")),
        num_preempted=_integer(metrics.get("num_preempted")),
        prompt_tokens=_whole_sum(turn.prompt_tokens for turn in turns),
        completion_tokens=_whole_sum(turn.completion_tokens for turn in turns),
        initial_prompt=_text(message.get("initial_prompt_text")),
        turns=turns,
        flags=flags,
    )


@dataclass(frozen=True, slots=True)
class TrajectorySummary:
    """What a list of trajectories shows of one; equal to the figures of its view."""

    uid: str
    index: int
    n_samples: int | None
    global_step: int | None
    completed_s: float | None
    total_ms: float | None
    reward: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    num_turns: int


def trajectory_summary(
    outer: dict[str, Any], inner: dict[str, Any] | None
) -> TrajectorySummary | None:
    """The summary of a parsed line; None without its ids."""
    ids = _ids(outer)
    if ids is None:
        return None
    uid, index = ids
    message = inner or {}
    metrics = _metrics(message)
    entries = message.get("turns")
    entries = entries[:MAX_TURNS] if isinstance(entries, list) else []
    numbers = {entry.get("turn_index") for entry in entries if _is_plain_turn(entry)}
    if len(numbers) == len(entries):
        tokens = [
            _whole_sum(_integer(entry.get(name)) for entry in entries)
            for name in ("prompt_token_count", "completion_token_count")
        ]
        num_turns = len(entries)
    else:  # doubled or damaged turns: only the whole view knows which ones count
        turns, _ = _turns(entries)
        tokens = [
            _whole_sum(turn.prompt_tokens for turn in turns),
            _whole_sum(turn.completion_tokens for turn in turns),
        ]
        num_turns = len(turns)
    return TrajectorySummary(
        uid=uid,
        index=index,
        n_samples=_integer(message.get("n_samples")),
        global_step=_integer(message.get("global_step")),
        completed_s=_number(message.get("completed_at_ts")),
        total_ms=_number(message.get("total_time_ms")),
        reward=_number(metrics.get("reward_score")),
        prompt_tokens=tokens[0],
        completion_tokens=tokens[1],
        num_turns=num_turns,
    )


def _ids(outer: dict[str, Any]) -> tuple[str, int] | None:
    """Prompt and sample number of a line; None where one of them is missing."""
    uid, index = outer.get("prompt_uid"), _integer(outer.get("sample_index"))
    if not isinstance(uid, str | int) or index is None:
        return None
    return str(uid), index


def _metrics(message: dict[str, Any]) -> dict[str, Any]:
    metrics = message.get("agent_metrics")
    return metrics if isinstance(metrics, dict) else {}


def _is_plain_turn(entry: object) -> bool:
    """Whether a turn says its own number, which is then not given by its place."""
    if not isinstance(entry, dict):
        return False
    number = entry.get("turn_index")
    return type(number) is int and abs(number) < MAX_INTEGER


def _turns(value: object) -> tuple[tuple[TurnView, ...], tuple[str, ...]]:
    """Turns in order of their index; of equal ones the later end stays."""
    if not isinstance(value, list):
        return (), ()
    kept: dict[int, TurnView] = {}
    flags: list[str] = []
    for place, entry in enumerate(value[:MAX_TURNS]):
        if not isinstance(entry, dict):
            flags.append("turn-not-an-object")
            continue
        turn = _turn(entry, place)
        other = kept.get(turn.index)
        if other is None:
            kept[turn.index] = turn
            continue
        flags.append("doubled-turn")
        if (turn.end_s or 0.0) >= (other.end_s or 0.0):
            kept[turn.index] = turn
    if list(kept) != sorted(kept):
        flags.append("turns-out-of-order")
    turns = tuple(kept[index] for index in sorted(kept))
    if any(
        one.end_s is not None and two.start_s is not None and two.start_s < one.end_s
        for one, two in pairwise(turns)
    ):
        flags.append("turns-overlap")
    return turns, tuple(sorted(set(flags)))


def _turn(entry: dict[str, Any], place: int) -> TurnView:
    index = _integer(entry.get("turn_index"))
    start, end = _number(entry.get("start_ts")), _number(entry.get("end_ts"))
    total_ms = _number(entry.get("turn_total_time_ms"))
    model_ms = _number(entry.get("completion_time_ms"))
    env_ms = _number(entry.get("observation_time_ms"))
    flags = []
    if start is not None and end is not None and end < start:
        flags.append("ends-before-start")
        end = None if total_ms is None else start + total_ms / 1000.0
    if total_ms is None:
        total_ms = _sum((model_ms, env_ms))
    if total_ms is None and start is not None and end is not None:
        total_ms = round((end - start) * 1000.0, 3)
    engine = [
        _number(entry.get(f"sglang_{name}_ms"))
        for name in ("queue_time", "ttft", "prefill", "decode_time")
    ]
    parts_ms = _sum((engine[0], engine[2], engine[3]))
    other_ms = None
    if model_ms is not None and parts_ms is not None:
        other_ms = round(max(0.0, model_ms - parts_ms), 6)
    return TurnView(
        index=place if index is None else index,
        prompt_tokens=_integer(entry.get("prompt_token_count")),
        completion_tokens=_integer(entry.get("completion_token_count")),
        finish_reason=_text(entry.get("finish_reason")),
        completion=_text(entry.get("completion_text")),
        observation=_text(entry.get("observation_text")),
        start_s=start,
        end_s=end,
        total_ms=total_ms,
        model_ms=model_ms,
        env_ms=env_ms,
        queue_ms=engine[0],
        ttft_ms=engine[1],
        prefill_ms=engine[2],
        decode_ms=engine[3],
        engine_other_ms=other_ms,
        template_tokens=_integer(entry.get("template_overhead_tokens")),
        tool_calls=_tool_calls(entry.get("tool_calls")),
        flags=tuple(flags),
    )


def _tool_calls(value: object) -> tuple[ToolCall, ...]:
    if not isinstance(value, list):
        return ()
    calls = []
    for entry in value[:1000]:
        if isinstance(entry, dict):
            args, ok = entry.get("args"), entry.get("ok")
            calls.append(
                ToolCall(
                    name=_text(entry.get("name")) or "?",
                    args=args if isinstance(args, str) else json.dumps(args),
                    ok=ok if isinstance(ok, bool) else None,
                    error=_text(entry.get("error")),
                    ms=_number(entry.get("ms")),
                )
            )
    return tuple(calls)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _integer(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < MAX_INTEGER else None
    number = _number(value)
    return (
        int(number) if number is not None and number.is_integer() and abs(number) < 2**62 else None
    )


def _text(value: object) -> str | None:
    """A string; lone surrogates become U+FFFD, other values their JSON text."""
    if value is None:
        return None
    if not isinstance(value, str):
        value = json.dumps(value)
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _times(value: object, factor: float) -> float | None:
    number = _number(value)
    return None if number is None else number * factor


def _first(one: float | None, other: float | None) -> float | None:
    return other if one is None else one


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 6) if known else None


def _whole_sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
