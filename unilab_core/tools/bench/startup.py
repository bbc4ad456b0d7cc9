"""``unilab-bench startup``: from the learner's ``import torch`` to the first answered tick.

The collector builds its environment while the learner imports torch, so the first tick should
follow the import closely. Figures come from ``run_summary.json`` of short real runs.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from unilab_core.tools.bench.launch import launch_run, read_summary
from unilab_core.tools.bench.report import BenchReport

PROMISED_S = 1.5
RUN_TIMEOUT_S = 180.0
ITERATIONS = 3


def run(*, repeats: int) -> BenchReport:
    """Start ``repeats`` runs one after another; one row each."""
    rows = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="unilab-bench-") as folder:
            paths = launch_run(
                "sac",
                "go2_joystick_flat",
                Path(folder),
                [f"algo.max_iterations={ITERATIONS}", "training.logger=none"],
                timeout_s=RUN_TIMEOUT_S,
            )
            rows.append(dict(read_summary(paths)["startup"]))
    after_import = [row["first_tick_s"] for row in rows]
    return BenchReport(
        bench="startup",
        settings={"repeats": repeats, "promise_s": PROMISED_S},
        rows=rows,
        ok=statistics.median(after_import) <= PROMISED_S,
    )
