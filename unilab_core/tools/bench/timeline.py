"""``unilab-bench timeline SOURCE``: what a timeline says, beside what the run logged.

Figures come from the trace alone; the logged ones from the event file (learner, every logged
iteration) and from ``last_state.json`` (collector, the reports of the last seconds). Cycles are
matched by their numbers, so the two columns are means over the same cycles. A source without a run
directory around it (one trace file) is shown without the logged column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from unilab_core.config.config import config_from_dict
from unilab_core.config.errors import ConfigError
from unilab_core.config.on_policy import PpoConfig
from unilab_core.run.json_files import read_json
from unilab_core.run.run_dir import RunPaths
from unilab_core.telemetry.event_file import read_scalars
from unilab_core.telemetry.timeline.figures import CycleFigures, Kind, cycle_figures
from unilab_core.telemetry.timeline.files import timeline_files
from unilab_core.tools.bench.report import BenchReport

PROMISED_PCT = 2.0
OTHER = "(rest of the wall)"

Logged = dict[Kind, dict[int, Mapping[str, float]]]
"""Kind of cycle -> its number -> value per tag."""


@dataclass(slots=True)
class _Pair:
    """One figure over all cycles, and over those that were logged."""

    total: float = 0.0
    count: int = 0
    matched_trace: float = 0.0
    matched_logged: float = 0.0
    matched: int = 0


@dataclass(slots=True)
class _Sums:
    pairs: dict[tuple[Kind, str], _Pair] = field(default_factory=dict)

    def add(self, cycle: CycleFigures, logged: Mapping[str, float]) -> None:
        """One cycle and what was logged of it."""
        values = dict(cycle.values)
        if cycle.exclusive_ns:
            values[OTHER] = (cycle.wall_ns - cycle.exclusive_ns) / 1e6
        for tag, value in values.items():
            pair = self.pairs.setdefault((cycle.kind, tag), _Pair())
            pair.total += value
            pair.count += 1
            if tag in logged:
                pair.matched_trace += value
                pair.matched_logged += logged[tag]
                pair.matched += 1


def run(*, source: Path) -> BenchReport:
    """Measure a run directory, a folder of traces or one trace file.

    Raises:
        FileNotFoundError: there is no timeline.
        DamagedTraceError: it cannot be read.
    """
    files = timeline_files(source)
    logged = _logged(source) if source.is_dir() else {}
    sums = _Sums()
    for cycle in cycle_figures(files):
        sums.add(cycle, logged.get(cycle.kind, {}).get(cycle.number, {}))
    rows = [_row(kind, tag, pair) for (kind, tag), pair in sums.pairs.items()]
    compared = [row["difference_pct"] for row in rows if row["difference_pct"] is not None]
    return BenchReport(
        bench="timeline",
        settings={"source": str(source), "files": [str(path) for path in files]},
        rows=rows,
        ok=bool(rows) and all(abs(difference) <= PROMISED_PCT for difference in compared),
    )


def _row(kind: Kind, tag: str, pair: _Pair) -> dict:
    logged = trace = difference = None
    if pair.matched:
        trace = pair.matched_trace / pair.matched
        logged = pair.matched_logged / pair.matched
        difference = 100.0 * (trace - logged) / logged if logged else 100.0 * float(trace != 0.0)
    return {
        "of": kind,
        "figure": tag,
        "cycles": pair.count,
        "mean": pair.total / pair.count,
        "compared": pair.matched,
        "trace": trace,
        "logged": logged,
        "difference_pct": difference,
    }


def _logged(run_dir: Path) -> Logged:
    config = read_json(RunPaths(run_dir).config)
    if config is None:
        return {}
    return {
        "iteration": _logged_iterations(run_dir, _steps_per_iteration(config)),
        **_logged_reports(run_dir),
    }


def _steps_per_iteration(record: Mapping) -> int | None:
    """Environment steps of a PPO iteration; the others log the iteration's number."""
    try:
        algo = config_from_dict(record["config"]).algo
    except (ConfigError, KeyError):
        return None
    return algo.num_envs * algo.num_steps_per_env if isinstance(algo, PpoConfig) else None


def _logged_iterations(run_dir: Path, steps: int | None) -> dict[int, Mapping[str, float]]:
    scalars = read_scalars(run_dir)
    numbers = {step: round(value) for step, value in scalars.get("Train/iteration", [])}
    found: dict[int, dict[str, float]] = {}
    for tag, points in scalars.items():
        if not tag.startswith(("Perf/learn", "Perf/iteration")):
            continue
        for step, value in points:
            number = numbers.get(step) if steps is None else step // steps
            if number is not None:
                found.setdefault(number, {})[tag] = value
    return dict(found)


def _logged_reports(run_dir: Path) -> Logged:
    """Collector reports of single cycles: those of several are means that nothing matches."""
    state = read_json(RunPaths(run_dir).last_state) or {}
    config = (read_json(RunPaths(run_dir).config) or {}).get("config", {})
    algo = config.get("algo", {})
    steps = algo.get("num_steps_per_env") or algo.get("steps_per_env")
    single = config.get("training", {}).get("collector_metrics_interval") == 1
    found: Logged = {"tick": {}, "rollout": {}}
    for report in state.get("collector", []):
        timing = report.get("timing") or {}
        if "Perf/collection_time" in timing:
            if steps and (report["tick"] + 1) % steps == 0:
                found["rollout"][(report["tick"] + 1) // steps - 1] = timing
        elif single:
            found["tick"][report["tick"]] = timing
    return found
