"""One finished trajectory and its JSON line. Standard library only.

The line is `{"prompt_uid", "sample_index", "raw_message"}`, where `raw_message` is itself JSON in
a string. Numbers keep the decimals of the source document: times in Unix seconds and seconds have
three, durations in milliseconds two. What is not finite becomes null; text is ASCII with escapes,
so that a lone surrogate cannot break a line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One round: the model acts, the tool or environment answers."""

    prompt_token_count: int | None = None
    """Tokens given to the model."""
    completion_text: str | None = None
    """What the model produced (the action)."""
    completion_token_count: int | None = None
    """Tokens (or steps) it produced."""
    finish_reason: str | None = None
    observation_text: str | None = None
    """Answer of the tool or environment."""
    start_ts: float | None = None
    """Unix seconds."""
    end_ts: float | None = None
    """Unix seconds."""
    completion_time_ms: float | None = None
    observation_time_ms: float | None = None
    queue_time_ms: float | None = None
    """Engine break-down; None on engines without one."""
    ttft_ms: float | None = None
    prefill_ms: float | None = None
    decode_time_ms: float | None = None
    template_overhead_tokens: int | None = None
    template_overhead_text: str | None = None
    tool_calls: Sequence[dict[str, object]] | None = None
    """Addition of this project: `{name, args, ok, error, ms}`; not written when None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryRecord:
    """One finished trajectory."""

    prompt_uid: str
    sample_index: int
    request_id: str = "0"
    n_samples: int = 1
    """Trajectories per prompt."""
    global_step: int = 0
    """Weight version at generation."""
    created_at_ts: float
    """Unix seconds."""
    completed_at_ts: float
    """Unix seconds."""
    total_time_ms: float | None = None
    """None: completed minus created."""
    turns: Sequence[TurnRecord] = field(default_factory=tuple)
    initial_prompt_text: str = ""
    generate_s: float | None = None
    """Model time in seconds; None: sum over turns."""
    tool_s: float | None = None
    """Tool and environment time in seconds; None: sum over turns."""
    reward_score: float | None = None
    num_preempted: int = -1
    """-1: not available."""


def trajectory_line(record: TrajectoryRecord) -> str:
    """The JSON line of one trajectory, without its line end."""
    outer = (
        ("prompt_uid", json.dumps(record.prompt_uid)),
        ("sample_index", str(record.sample_index)),
        ("raw_message", json.dumps(raw_message(record))),
    )
    return _object(outer)


def raw_message(record: TrajectoryRecord) -> str:
    """The inner JSON text."""
    total_ms = record.total_time_ms
    if total_ms is None:
        total_ms = (record.completed_at_ts - record.created_at_ts) * 1000.0
    generate_s, tool_s = record.generate_s, record.tool_s
    if generate_s is None:
        generate_s = sum(turn.completion_time_ms or 0.0 for turn in record.turns) / 1000.0
    if tool_s is None:
        tool_s = sum(turn.observation_time_ms or 0.0 for turn in record.turns) / 1000.0
    reward = record.reward_score
    metrics = (
        ("generate_sequences", _decimal(generate_s, 3)),
        ("tool_calls", _decimal(tool_s, 3)),
        ("reward_score", _plain(reward)),
        ("num_preempted", str(record.num_preempted)),
    )
    turns = ",".join(_turn(index, turn) for index, turn in enumerate(record.turns))
    return _object(
        (
            ("request_id", json.dumps(record.request_id)),
            ("n_samples", str(record.n_samples)),
            ("global_step", str(record.global_step)),
            ("created_at_ts", _decimal(record.created_at_ts, 3)),
            ("completed_at_ts", _decimal(record.completed_at_ts, 3)),
            ("total_time_ms", _decimal(total_ms, 2)),
            ("turns", f"[{turns}]"),
            ("initial_prompt_text", json.dumps(record.initial_prompt_text)),
            ("agent_metrics", _object(metrics)),
        )
    )


def _turn(index: int, turn: TurnRecord) -> str:
    parts = [turn.completion_time_ms, turn.observation_time_ms]
    known = [part for part in parts if part is not None]
    fields = [
        ("turn_index", str(index)),
        ("prompt_token_count", _plain(turn.prompt_token_count)),
        ("completion_text", json.dumps(turn.completion_text)),
        ("completion_token_count", _plain(turn.completion_token_count)),
        ("finish_reason", json.dumps(turn.finish_reason)),
        ("observation_text", json.dumps(turn.observation_text)),
        ("start_ts", _decimal(turn.start_ts, 3)),
        ("end_ts", _decimal(turn.end_ts, 3)),
        ("turn_total_time_ms", _decimal(sum(known) if known else None, 2)),
        ("completion_time_ms", _decimal(turn.completion_time_ms, 2)),
        ("observation_time_ms", _decimal(turn.observation_time_ms, 2)),
        ("sglang_queue_time_ms", _decimal(turn.queue_time_ms, 2)),
        ("sglang_ttft_ms", _decimal(turn.ttft_ms, 2)),
        ("sglang_prefill_ms", _decimal(turn.prefill_ms, 2)),
        ("sglang_decode_time_ms", _decimal(turn.decode_time_ms, 2)),
        ("template_overhead_tokens", _plain(turn.template_overhead_tokens)),
        ("template_overhead_text", json.dumps(turn.template_overhead_text)),
    ]
    if turn.tool_calls is not None:
        calls = json.dumps(
            [_finite(call) for call in turn.tool_calls], separators=(",", ":"), allow_nan=False
        )
        fields.append(("tool_calls", calls))
    return _object(fields)


def _object(fields: Sequence[tuple[str, str]]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields) + "}"


def _decimal(value: float | None, decimals: int) -> str:
    return "null" if value is None or not isfinite(value) else f"{value:.{decimals}f}"


def _plain(value: float | None) -> str:
    return "null" if value is None or not isfinite(value) else json.dumps(value)


def _finite(value: object) -> object:
    """The same JSON value with null in the place of numbers that are not finite."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value if isinstance(value, str | int | bool | None) else str(value)
