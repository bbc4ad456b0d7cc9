"""The records that travel in the metric rings: one class per kind, builder and strict parser.

    collector ring   CollectorReport   one per reported vector tick
    learner ring     RunInfo           static facts; at start, when trainable, every ~5 s
                     IterationReport   one per learner iteration (or warm-up beat)
                     Note              one-off remark (checkpoint saved, non-finite row dropped)

`report.record()` is the msgpack-ready dict, `parse_record()` the way back. A record crosses a
process border, so the parser believes nothing: wrong types, non-numbers and oversized tables raise
`RecordError`, which a reader counts. Unknown keys are ignored (a newer writer may add some).
Names and texts are foreign: run them through `plain.sanitize` before showing them.

All `t_ns` are CLOCK_MONOTONIC of the writing host; totals (`env_steps`, `episodes`,
`terminations_total`) are cumulative, so that a lost record biases nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

Level = Literal["info", "warning", "error"]

MAX_TABLE_ENTRIES = 512
MAX_TEXT_CHARS = 4096

_NUMBERS = {float, int}
_NAMES = {str}


class RecordError(ValueError):
    """A ring record that does not have the form its kind promises."""


@dataclass(kw_only=True, slots=True, frozen=True)
class CollectorReport:
    """What a collector tells about one vector tick (or the mean over a few)."""

    rank: int
    t_ns: int
    tick: int
    env_steps: int
    """Transitions published so far, all environments together."""
    timing: Mapping[str, float]
    """Canonical collector tags in their unit."""
    cycle_ms: float | None
    """Sum of the cycle's phases; None where they do not add up (APPO)."""
    wall_ms: float | None
    """Measured wall of the whole cycle."""
    inference: Mapping[str, float]
    """Canonical Perf/collector_inference_* gauges."""
    episodes_completed: int
    timeouts: int
    mean_return: float | None
    """Over the last 100 episodes; None before the first."""
    mean_length: float | None
    rewards: Mapping[str, float]
    """`reward/<term>`: mean since the previous report."""
    terminations: Mapping[str, float]
    """`Episode_Termination/<term>`: count since the previous report."""
    terminations_total: Mapping[str, float]
    dropped: Mapping[str, float] = field(default_factory=dict)
    """Transitions that the NaN guard dropped so far, by source."""

    def record(self) -> dict:
        """The ring record."""
        return {
            "kind": "collector",
            "rank": self.rank,
            "t_ns": self.t_ns,
            "tick": self.tick,
            "env_steps": self.env_steps,
            "timing": self.timing,
            "cycle_ms": self.cycle_ms,
            "wall_ms": self.wall_ms,
            "inference": self.inference,
            "episodes": {
                "completed": self.episodes_completed,
                "timeouts": self.timeouts,
                "mean_return": self.mean_return,
                "mean_length": self.mean_length,
            },
            "rewards": self.rewards,
            "terminations": self.terminations,
            "terminations_total": self.terminations_total,
            "dropped": self.dropped,
        }

    @classmethod
    def from_record(cls, record: Mapping) -> Self:
        """Parse a `collector` record."""
        episodes = _get(record, "episodes")
        if not isinstance(episodes, Mapping):
            raise RecordError("record field 'episodes': expected a table")
        return cls(
            rank=_int(record, "rank"),
            t_ns=_int(record, "t_ns"),
            tick=_int(record, "tick"),
            env_steps=_int(record, "env_steps"),
            timing=_table(record, "timing"),
            cycle_ms=_number_or_none(record, "cycle_ms"),
            wall_ms=_number_or_none(record, "wall_ms"),
            inference=_table(record, "inference"),
            episodes_completed=_int(episodes, "completed"),
            timeouts=_int(episodes, "timeouts"),
            mean_return=_number_or_none(episodes, "mean_return"),
            mean_length=_number_or_none(episodes, "mean_length"),
            rewards=_table(record, "rewards"),
            terminations=_table(record, "terminations"),
            terminations_total=_table(record, "terminations_total"),
            dropped=_table(record, "dropped"),
        )


@dataclass(kw_only=True, slots=True, frozen=True)
class RunInfo:
    """What does not change while a run lasts (except `trainable_ns`, which becomes known)."""

    job: str
    algo: str
    task: str
    sim: str
    run_dir: str
    device: str
    """"cpu", "cuda:0", "mps"."""
    num_gpus: int
    max_iterations: int
    num_envs: int
    batch_per_rank: int
    ranks: int = 1
    cuda_mps: str = "off"
    """"on", "ambient" or "off"."""
    log_interval: int = 1
    first_iteration: int = 0
    """Iteration of the checkpoint this session resumed from: the ETA counts from there."""
    trainable_ns: int | None = None
    """Monotonic time of the first trainable moment: elapsed and ETA start there."""

    @property
    def accelerator(self) -> bool:
        """True when the learner's device is not the host."""
        return self.device != "cpu"

    def record(self, t_ns: int) -> dict:
        """The ring record, stamped."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {"kind": "run", "t_ns": t_ns, **fields}

    @classmethod
    def from_record(cls, record: Mapping) -> Self:
        """Parse a `run` record."""
        return cls(
            job=_text(record, "job"),
            algo=_text(record, "algo"),
            task=_text(record, "task"),
            sim=_text(record, "sim"),
            run_dir=_text(record, "run_dir"),
            device=_text(record, "device"),
            num_gpus=_int(record, "num_gpus"),
            max_iterations=_int(record, "max_iterations"),
            num_envs=_int(record, "num_envs"),
            batch_per_rank=_int(record, "batch_per_rank"),
            ranks=_int(record, "ranks"),
            cuda_mps=_text(record, "cuda_mps"),
            log_interval=_int(record, "log_interval"),
            first_iteration=_int(record, "first_iteration"),
            trainable_ns=_int_or_none(record, "trainable_ns"),
        )


@dataclass(kw_only=True, slots=True, frozen=True)
class IterationReport:
    """One learner iteration, or (with `iteration` 0 and empty tables) one beat of the warm-up."""

    t_ns: int
    iteration: int
    env_steps: int
    wall_ms: float | None = None
    """None when no full wall was measured; then `accounted_ms` stands for it."""
    accounted_ms: float | None = None
    """Sum of the exclusive phases."""
    other_ms: float | None = None
    """max(wall - accounted, 0)."""
    learner: Mapping[str, float] = field(default_factory=dict)
    """Learner timing tags in their unit (s for Perf/learning_time)."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    reward_mean: float | None = None
    reward_best: float | None = None
    """Best `reward_mean` of the run so far."""
    rewards: Mapping[str, float] = field(default_factory=dict)
    terminations: Mapping[str, float] = field(default_factory=dict)
    episode_length: float | None = None
    timeout_rate: float | None = None
    steps_per_s: float | None = None
    rows_per_s: float | None = None
    buffer: int | None = None
    """Rows in the replay buffer."""
    status: str = "Training"
    dropped: int = 0
    """Records that sinks or rings lost so far."""
    rank: int = 0

    def record(self) -> dict:
        """The ring record."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {"kind": "iteration", **fields}

    @classmethod
    def from_record(cls, record: Mapping) -> Self:
        """Parse an `iteration` record."""
        return cls(
            t_ns=_int(record, "t_ns"),
            iteration=_int(record, "iteration"),
            env_steps=_int(record, "env_steps"),
            wall_ms=_number_or_none(record, "wall_ms"),
            accounted_ms=_number_or_none(record, "accounted_ms"),
            other_ms=_number_or_none(record, "other_ms"),
            learner=_table(record, "learner"),
            metrics=_table(record, "metrics"),
            reward_mean=_number_or_none(record, "reward_mean"),
            reward_best=_number_or_none(record, "reward_best"),
            rewards=_table(record, "rewards"),
            terminations=_table(record, "terminations"),
            episode_length=_number_or_none(record, "episode_length"),
            timeout_rate=_number_or_none(record, "timeout_rate"),
            steps_per_s=_number_or_none(record, "steps_per_s"),
            rows_per_s=_number_or_none(record, "rows_per_s"),
            buffer=_int_or_none(record, "buffer"),
            status=_text(record, "status"),
            dropped=_int(record, "dropped"),
            rank=_int(record, "rank"),
        )


@dataclass(kw_only=True, slots=True, frozen=True)
class Note:
    """A remark worth a line in the monitors."""

    t_ns: int
    text: str
    level: Level = "info"

    def record(self) -> dict:
        """The ring record."""
        return {"kind": "event", "t_ns": self.t_ns, "text": self.text, "level": self.level}

    @classmethod
    def from_record(cls, record: Mapping) -> Self:
        """Parse an `event` record."""
        level = _text(record, "level")
        if level not in ("info", "warning", "error"):
            raise RecordError(f"record field 'level': {level!r} is unknown")
        return cls(t_ns=_int(record, "t_ns"), text=_text(record, "text"), level=level)


Report = CollectorReport | RunInfo | IterationReport | Note

_KINDS = {
    "collector": CollectorReport,
    "run": RunInfo,
    "iteration": IterationReport,
    "event": Note,
}


def parse_record(record: object) -> Report:
    """Parse any ring record; RecordError when it is none of ours."""
    if not isinstance(record, Mapping):
        raise RecordError(f"expected a table, got {type(record).__name__}")
    kind = record.get("kind")
    parser = _KINDS.get(kind) if isinstance(kind, str) else None
    if parser is None:
        raise RecordError(f"record kind {kind!r} is unknown")
    return parser.from_record(record)


def _get(record: Mapping, name: str) -> object:
    try:
        return record[name]
    except KeyError:
        raise RecordError(f"record field {name!r} is missing") from None


def _int(record: Mapping, name: str) -> int:
    value = _get(record, name)
    if type(value) is not int:
        raise RecordError(f"record field {name!r}: expected an integer, got {value!r:.40}")
    return value


def _int_or_none(record: Mapping, name: str) -> int | None:
    return None if _get(record, name) is None else _int(record, name)


def _number_or_none(record: Mapping, name: str) -> float | None:
    value = _get(record, name)
    if value is None:
        return None
    if type(value) is not float and type(value) is not int:
        raise RecordError(f"record field {name!r}: expected a number, got {value!r:.40}")
    return float(value)


def _text(record: Mapping, name: str) -> str:
    value = _get(record, name)
    if type(value) is not str or len(value) > MAX_TEXT_CHARS:
        raise RecordError(f"record field {name!r}: expected text, got {value!r:.40}")
    return value


def _table(record: Mapping, name: str) -> dict[str, float]:
    value = _get(record, name)
    if not isinstance(value, dict) or len(value) > MAX_TABLE_ENTRIES:
        raise RecordError(f"record field {name!r}: expected a table of numbers")
    # Checked in bulk: this runs for every report in the learner's main thread.
    if not set(map(type, value.values())) <= _NUMBERS:
        raise RecordError(f"record field {name!r}: not all values are numbers")
    if not set(map(type, value)) <= _NAMES:
        raise RecordError(f"record field {name!r}: not all names are texts")
    return value
