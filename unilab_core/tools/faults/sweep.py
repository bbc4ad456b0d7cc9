"""``unilab-bench faults``: every case, some at a time, and the table of what was promised and seen.

The promise is that of a fault's row; a point that took longer is not wrong, but it is the worst
value that the table shows. Wrong are a hang, anything left behind, another exit code, a message
that does not name what died, a newest checkpoint that does not load, a fault that never struck.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from unilab_core.config.errors import ConfigError
from unilab_core.run.json_files import read_json
from unilab_core.tools.bench.report import BenchReport
from unilab_core.tools.faults.cases import Case, quick, sweep
from unilab_core.tools.faults.side_by_side import run_side_by_side
from unilab_core.tools.faults.tiny_job import TinyJob
from unilab_core.tools.faults.watch import Point, run_case

BASE_RUN_S = 180.0


@dataclass(kw_only=True, slots=True, frozen=True)
class Row:
    """One row of the acceptance table."""

    what: str
    seen_s: float | None
    """Promised time until somebody notices; None: nothing to notice."""
    ended_s: float | None


ROWS = {
    "F01": Row(what="collector killed", seen_s=0.5, ended_s=5.0),
    "F02": Row(what="learner killed", seen_s=0.5, ended_s=5.0),
    "F04": Row(what="launcher dies (kill, segv, exit)", seen_s=0.5, ended_s=5.0),
    "F07": Row(what="a process dies otherwise (segv, exit, exception)", seen_s=0.5, ended_s=5.0),
    "F08": Row(what="stopped for 5 s, continued: job goes on", seen_s=None, ended_s=None),
    "F09": Row(what="stopped for ever, after the hang limit", seen_s=0.5, ended_s=5.0),
    "F10": Row(what="stands still, after the hang limit", seen_s=0.5, ended_s=5.0),
    "F16": Row(what="no shared memory at the start", seen_s=None, ended_s=5.0),
    "F18": Row(what="disk full at a checkpoint", seen_s=None, ended_s=None),
    "F19": Row(what="disk full for metrics or summary: job goes on", seen_s=None, ended_s=None),
    "F24": Row(what="NaN in data, weights or checkpoint", seen_s=0.5, ended_s=5.0),
    "F25": Row(what="environment raises", seen_s=0.5, ended_s=5.0),
}


def run(
    *,
    algos: Sequence[str],
    is_quick: bool,
    seed: int,
    jobs: int,
    part: tuple[int, int] = (1, 1),
    only: str = "",
    out: Path | None = None,
    table: Path | None = None,
) -> BenchReport:
    """Run the sweep.

    Args:
        algos: algorithms.
        is_quick: a few cases that cover most rows.
        seed: of the order and of the passages that are struck.
        jobs: cases at a time.
        part: (k, n) runs the k-th of n parts of the sweep; `merge` puts them together.
        only: cases whose name holds this text.
        out: file of the machine-readable result, every point in it.
        table: file of the table, in Markdown.
    """
    cases = quick(algos, seed) if is_quick else sweep(algos, seed)
    cases = [case for case in cases if only in case.name][part[0] - 1 :: part[1]]
    settings = {"algos": list(algos), "quick": is_quick, "seed": seed, "jobs": jobs}
    return _report(_run_all(cases, jobs), settings, out, table)


def merge(parts: Sequence[Path], *, out: Path | None, table: Path | None) -> BenchReport:
    """One report from the `--out` files of several parts.

    Raises:
        ConfigError: a file is not such a result.
    """
    points: dict[str, Point] = {}
    settings: dict[str, object] = {}
    for path in parts:
        record = read_json(path)
        if record is None or record.get("bench") != "faults":
            raise ConfigError(f"{path}: not a result of unilab-bench faults")
        settings = record["settings"]
        # A part that was run again replaces what it found before.
        points.update({one["name"]: Point(**one) for one in record["points"]})
    return _report(list(points.values()), settings, out, table)


def _report(
    points: Sequence[Point], settings: dict[str, object], out: Path | None, table: Path | None
) -> BenchReport:
    report = BenchReport(
        bench="faults",
        settings=settings,
        rows=table_rows(points),
        ok=bool(points) and not any(point.violations for point in points),
    )
    if out is not None:
        report.write(out, points=[point.record() for point in points])
    if table is not None:
        table.write_text(markdown(report.rows))
    return report


def table_rows(points: Iterable[Point]) -> list[dict]:
    """One row per row of the acceptance table that has points."""
    by_row: dict[str, list[Point]] = {}
    for point in points:
        by_row.setdefault(point.row, []).append(point)
    rows = []
    for name, group in sorted(by_row.items()):
        promised = ROWS[name]
        row: dict[str, object] = {"row": name, "fault": promised.what}
        for key, promise_s in (("seen", promised.seen_s), ("ended", promised.ended_s)):
            times_s = [
                value for point in group if (value := getattr(point, f"{key}_s")) is not None
            ]
            shown = times_s if promise_s is not None else []
            row[f"{key}_promise_s"] = promise_s
            row[f"{key}_median_s"] = round(statistics.median(shown), 3) if shown else None
            row[f"{key}_worst_s"] = round(max(shown), 3) if shown else None
        row["points"] = len(group)
        row["wrong"] = sum(bool(point.violations) for point in group)
        rows.append(row)
    return rows


def markdown(rows: Sequence[dict]) -> str:
    """The same rows as a Markdown table; times in seconds."""
    lines = [
        "| row | fault | seen: promise | median | worst "
        "| ended: promise | median | worst | points | wrong |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = ["-" if value is None else str(value) for value in row.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _run_all(cases: Sequence[Case], jobs: int) -> list[Point]:
    with tempfile.TemporaryDirectory(prefix="unilab-faults-") as folder:
        root = Path(folder)
        bases = _base_runs(root, sorted({case.algo for case in cases if case.resumes}))

        def one(index: int, case: Case, stop: threading.Event) -> Point:
            place = root / f"case-{index:04d}"
            place.mkdir()
            resume = bases[case.algo] if case.resumes else None
            return run_case(case, place, resume=resume, stop=stop)

        tasks = [partial(one, index, case) for index, case in enumerate(cases)]
        return run_side_by_side(tasks, jobs, _show)


def _base_runs(root: Path, algos: Sequence[str]) -> dict[str, Path]:
    """A finished run of each algorithm, to resume from."""
    bases: dict[str, Path] = {}
    for algo in algos:
        job = TinyJob(folder=root / f"base-{algo}", algo=algo)
        job.folder.mkdir()
        code = job.start().wait(timeout=BASE_RUN_S)
        if code != 0:
            raise RuntimeError(f"the run to resume from ended with code {code}: {job.said()}")
        bases[algo] = job.run_dirs()[-1]
    return bases


def _show(point: Point, count: int, total: int) -> None:
    seen = "-" if point.seen_s is None else f"{point.seen_s:.3f}"
    ended = "-" if point.ended_s is None else f"{point.ended_s:.3f}"
    verdict = "; ".join(point.violations) or "ok"
    print(
        f"[{count}/{total}] {point.row} {point.name}: exit {point.exit_code}, seen {seen} s, "
        f"ended {ended} s, wall {point.wall_s:.1f} s: {verdict}",
        file=sys.stderr,
        flush=True,
    )
