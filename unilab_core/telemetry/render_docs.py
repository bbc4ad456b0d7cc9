"""docs/metrics.md, generated: `python -m unilab_core.telemetry.render_docs [--check] PATH`.

The tables come from the schema, the legacy table and the diagnosis rows; only the connecting text
lives here. A test compares the file with `render()`.
"""

import argparse
import sys
from pathlib import Path

from unilab_core.telemetry.diagnosis import render_table
from unilab_core.telemetry.legacy_tags import LEGACY_TAGS, RETIRED_TAGS
from unilab_core.telemetry.metric_schema import (
    FAMILIES,
    LOGGER_OWNED,
    METRIC_SCHEMA_VERSION,
    METRICS,
    collector_phases,
    learner_phases,
)
from unilab_core.telemetry.metric_spec import ALGOS, MetricSpec

_ALGO_LETTERS: dict[str, str] = dict(zip(ALGOS, "PASF", strict=True))

_HEAD = f"""# Metrics

Metric schema {METRIC_SCHEMA_VERSION}. Generated from `unilab_core/telemetry` by
`python -m unilab_core.telemetry.render_docs docs/metrics.md`; do not edit by hand.

A learner hands each iteration to one training logger, once. The logger writes the iteration's own
values, unsmoothed, to TensorBoard (or W&B) and one record to the metric ring, from which panels and
monitors draw; they show the mean over the last two seconds. `run_summary.json` carries
`metric_schema_version`. Within a version tags may be added; a changed name, unit or meaning is a
new version.

- Step axis: total environment steps, for all algorithms. `Train/iteration` is logged beside it.
- `training.log_interval` thins what is written; the last iteration is always written.
- Times ending in `_ms` are milliseconds; `Perf/learning_time`, `Perf/collection_time` and
  `Perf/iteration_time` are seconds.
- Shown but never written: Other, all percentages, the collector's cycle sum, Rows/s.
- Several ranks: the mean over ranks unless the table says otherwise. Rank 0 logs.
"""

_SCHEMA = """## Tags

Who: P = PPO, A = APPO, S = SAC, F = FlashSAC. Part: a *phase* is an exclusive slice of its time
line, *nested* a detail inside a phase, *background* may overlap anything, *wall* a whole time line.
"""

_RULES = f"""## Rules

These are errors (`ValueError`), so that a wrong figure is found at its first iteration:

- a tag outside this table, or one without meaning for the algorithm or the kind of run;
- a value that is not a number; NaN and infinities are numbers and are written;
- one of the {len(LOGGER_OWNED)} tags that the logger derives, passed in as a metric;
- a tag twice in one iteration;
- an unknown timing or inference key in a collector's report; an inference gauge below zero;
- a reward term named `mean` or `mean_ep100`, an empty term, a term with a `/`.

`reward/<term>` diagnoses the current reward, `Train/mean_reward` measures training progress.
`Episode_Reward/<term>` of older runs had another meaning and no longer exists. A series of
`Episode_Termination/<term>` counts the environments of each written iteration.
"""

_SAC_TIME_LINES = """## The two time lines of SAC and FlashSAC

The learner's phases add up to Iter Wall, together with Other = max(Iter Wall - phases, 0). The
collector's phases add up to its cycle. The two run side by side: never add one to the other. Phases
that exceed Iter Wall are a fault of the timing and shown as an alarm.

| learner (share of Iter Wall) | collector (share of its cycle) |
|---|---|
"""

_SAC_SEQUENCE = """
```mermaid
sequenceDiagram
    participant C as collector
    participant S as inference slot
    participant L as learner
    participant R as replay
    Note over C,L: iteration k begins, request t is published
    C->>S: Inference Request t
    S-->>L: Collector Wait ends
    L->>L: Inference t (h2d, forward, d2h)
    L-->>C: Collector Release, response t
    par collector, tick t
        C->>C: Env Step
        C->>R: Transition Extract, Replay Write
        C->>S: Inference Request t+1
        Note over C: Learner Action Wait begins
    and learner, iteration k
        L->>R: Replay Batch Wait, Replay Sample
        L->>L: Learning (all updates of the iteration)
    end
    S-->>L: Collector Wait of iteration k+1 ends
    L-->>C: response t+1, Learner Action Wait ends
```

- Learner Action Wait is no inference latency: a collector that is early waits for the rest of the
  update as well. A long wait there with a short Collector Wait means that the learner is the limit.
- Inference and update never overlap; each tick is answered by one complete policy version.
- The inference details and Replay H2D Submit are written to files only. On a CPU learner h2d and
  d2h are the copies between slot and tensors, Replay Batch Wait is the ingress commit and the
  gather, and Replay H2D Submit does not exist.
"""

_APPO_TIME_LINES = """## The two time lines of APPO

The collector produces rollouts without waiting for the learner; the ring between them decouples
both. Its three figures (MLP Infer, Env Step: moving averages of one step; Rollout Wall: the whole
rollout) do not add up to anything. The learner's phases do:

{phases}.

```mermaid
gantt
    title one APPO iteration (proportions are an example)
    dateFormat x
    axisFormat %S
    section collector
    rollout n+1 (Rollout Wall) :active, 0, 18000
    section learner
    Collector Wait :done, 0, 1000
    Replay Stage   :1000, 3000
    Replay Sample  :3000, 4000
    Learning       :active, 4000, 16000
    Weight Publish :crit, 16000, 18000
```
"""

_DIAGNOSIS = """## Which side is the bottleneck

The Diagnosis line of the panel and `diagnosis` of `unilab-monitor --once --json` apply these rows
to the two-second means, heaviest share first. While Collector Wait is high, the collector's wait
is not reported: both sides wait then, and the learner's row names the cause.
"""

_LEGACY = """## Tags of older runs

Event files are never rewritten. Old value x factor = value in today's unit.

| old tag | tag | factor | who |
|---|---|---|---|
"""


def render() -> str:
    """The whole page."""
    blocks = [
        _HEAD,
        _SCHEMA,
        _metric_table([*METRICS.values()]),
        "### Families\n",
        _metric_table([*FAMILIES]),
        _RULES,
        _SAC_TIME_LINES.rstrip("\n") + "\n" + _phase_rows(),
        _SAC_SEQUENCE.lstrip("\n"),
        _APPO_TIME_LINES.format(phases=_phase_chain("appo")),
        _DIAGNOSIS,
        render_table() + "\n",
        _LEGACY.rstrip("\n") + "\n" + _legacy_rows(),
        "Retired without an heir: " + ", ".join(f"`{tag}`" for tag in RETIRED_TAGS) + ".\n",
    ]
    return "\n".join(blocks)


def main(argv: list[str] | None = None) -> int:
    """Write the page to PATH, or with --check say whether PATH is up to date (exit 1 if not)."""
    parser = argparse.ArgumentParser(prog="python -m unilab_core.telemetry.render_docs")
    parser.add_argument("path", type=Path, nargs="?", default=Path("docs/metrics.md"))
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(argv)
    if not options.check:
        options.path.write_text(render(), encoding="utf-8")
        return 0
    if options.path.is_file() and options.path.read_text(encoding="utf-8") == render():
        return 0
    print(f"{options.path} is out of date: run {parser.prog} {options.path}", file=sys.stderr)
    return 1


def _metric_table(metrics: list[MetricSpec]) -> str:
    lines = [
        "| tag | unit | owner | who | reports | ranks | part | meaning |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for metric in metrics:
        part = "" if metric.part == "value" else metric.part
        lines.append(
            f"| `{metric.tag}` | {metric.unit} | {metric.owner} | {_who(metric.algos)}"
            f" | {metric.aggregation} | {metric.dp_rule} | {part} | {_meaning(metric)} |"
        )
    return "\n".join(lines) + "\n"


def _meaning(metric: MetricSpec) -> str:
    if metric.when in ("always", "wall measured", "episode"):
        return metric.doc
    return f"{metric.doc} Only with: {metric.when}."


def _who(algos: tuple[str, ...]) -> str:
    return "all" if algos == ALGOS else " ".join(_ALGO_LETTERS[algo] for algo in algos)


def _phase_rows() -> str:
    left = [f"{m.label} `{m.tag}`" for m in learner_phases("sac")] + ["Other"]
    right = [f"{m.label} `{m.tag}`" for m in collector_phases("sac")]
    right += [""] * (len(left) - len(right))
    return "".join(f"| {a} | {b} |\n" for a, b in zip(left, right, strict=True))


def _phase_chain(algo: str) -> str:
    return ", ".join([m.label for m in learner_phases(algo)] + ["Other"])


def _legacy_rows() -> str:
    return "".join(
        f"| `{entry.legacy}` | `{entry.canonical}` | {entry.factor:g} | {_who(entry.algos)} |\n"
        for entry in LEGACY_TAGS
    )


if __name__ == "__main__":
    sys.exit(main())
