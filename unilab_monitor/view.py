"""The immutable picture of one job: what the model folds and every output draws.

`View` holds figures in the units of their canonical tags, ages in seconds of the monotonic clock,
and `None` wherever a figure is not known. Nothing in it refers to shared memory, to a widget or to
a clock, so a view can be kept, compared and printed at any time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

State = Literal["starting", "running", "stalled", "ended"]
Trend = Literal["up", "flat", "down"]


@dataclass(kw_only=True, slots=True, frozen=True)
class JobFacts:
    """What does not change while the job runs; `None` until a source has said it.

    Attributes:
        trace_root: directory of its RL traces; None: it writes none.
        trace_times: file with the times of their progress lines.
    """

    job: str | None = None
    algo: str | None = None
    task: str | None = None
    sim: str | None = None
    run_dir: str | None = None
    trace_root: str | None = None
    trace_times: str | None = None
    device: str | None = None
    num_gpus: int = 0
    max_iterations: int | None = None
    num_envs: int | None = None
    batch_per_rank: int | None = None
    ranks: int | None = None
    cuda_mps: str | None = None


@dataclass(kw_only=True, slots=True, frozen=True)
class LearnerView:
    """The learner's clock: means over the window, in the unit of each tag.

    Attributes:
        age_s: since its last iteration record; `None` before the first.
        stalled: it has been silent for longer than its own rhythm explains.
        wall_ms: Iter Wall; the accounted time where no wall was measured.
        other_ms: Iter Wall minus the exclusive phases, never below zero.
        accounted_ms: sum of the exclusive phases.
        alarm: a sentence when the phases claim more than Iter Wall, a fault in the timing.
    """

    age_s: float | None = None
    stalled: bool = False
    values: Mapping[str, float] = field(default_factory=dict)
    wall_ms: float | None = None
    other_ms: float | None = None
    accounted_ms: float | None = None
    alarm: str | None = None


@dataclass(kw_only=True, slots=True, frozen=True)
class CollectorView:
    """The collector's clock: means over the window.

    Attributes:
        cycle_ms: sum of the six exclusive phases; `None` unless all six are known.
        wall_ms: measured wall of the whole cycle.
        other_ms: what the phases leave of the wall.
    """

    age_s: float | None = None
    stalled: bool = False
    values: Mapping[str, float] = field(default_factory=dict)
    cycle_ms: float | None = None
    wall_ms: float | None = None
    other_ms: float | None = None


@dataclass(kw_only=True, slots=True, frozen=True)
class RewardView:
    """Mean episode return, its course, and the terms.

    Attributes:
        mean: over the window.
        peak: highest of the last 200 reports.
        trend: last 10 reports against the 10 before; `None` below 10 reports.
        course: evenly spaced means over everything this monitor has seen, oldest first.
    """

    mean: float | None = None
    peak: float | None = None
    trend: Trend | None = None
    course: tuple[float, ...] = ()
    terms: Mapping[str, float] = field(default_factory=dict)
    terminations: Mapping[str, float] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True, frozen=True)
class ProcessView:
    """One row of the heartbeat board.

    Attributes:
        age_s: since its last beat.
        os_state: state letter of the kernel (`T` = stopped), only looked up for silent processes.
        state: missing, alive, ended, stopped or failed, as the role wrote it.
    """

    role: str
    rank: int
    pid: int
    phase: str
    awaits: str | None
    age_s: float | None
    os_state: str | None = None
    state: str = "alive"

    @property
    def is_alive(self) -> bool:
        """Registered and not yet ended, as far as the role itself has said."""
        return self.state == "alive"


@dataclass(kw_only=True, slots=True, frozen=True)
class EventView:
    """A one-off note of the job."""

    age_s: float
    text: str
    level: str


@dataclass(kw_only=True, slots=True, frozen=True)
class FindingView:
    """One row of the bottleneck table that applies now."""

    finding: str
    check: str


@dataclass(kw_only=True, slots=True, frozen=True)
class EndView:
    """How the job ended."""

    reason: str
    exit_code: int | None = None
    ended_utc: str | None = None


@dataclass(kw_only=True, slots=True, frozen=True)
class View:
    """Everything that can be shown about a job at one moment."""

    state: State = "starting"
    facts: JobFacts = field(default_factory=JobFacts)
    end: EndView | None = None
    iteration: int | None = None
    env_steps: int | None = None
    status: str | None = None
    warm_up: bool = False
    elapsed_s: float | None = None
    eta_s: float | None = None
    window_samples: int = 0
    steps_per_s: float | None = None
    rows_per_s: float | None = None
    steps_course: tuple[float, ...] = ()
    episode_length: float | None = None
    timeout_rate: float | None = None
    buffer_rows: float | None = None
    learner: LearnerView = field(default_factory=LearnerView)
    collector: CollectorView = field(default_factory=CollectorView)
    metrics: Mapping[str, float] = field(default_factory=dict)
    rewards: RewardView = field(default_factory=RewardView)
    processes: tuple[ProcessView, ...] = ()
    findings: tuple[FindingView, ...] = ()
    events: tuple[EventView, ...] = ()
    stop_level: int = 0
    lapped: int = 0
    trace_dropped: int = 0
    dropped: int = 0
    invalid: int = 0
