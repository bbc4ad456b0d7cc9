"""``unilab-extract-metrics RUN_DIR``: the mean of the last points of a run's timing figures.

Exit codes: 0 read, 2 the run is not what this mode reads (missing, unsupported or mixed naming).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

from unilab_core.run.exit_codes import ExitCode
from unilab_core.telemetry.metric_extraction import Extraction, ExtractionError, extract
from unilab_core.telemetry.metric_schema import METRIC_SCHEMA_VERSION
from unilab_core.telemetry.plain import sanitize


def main(argv: list[str] | None = None) -> int:
    """Read one run and print its figures."""
    args = parser().parse_args(argv)
    try:
        found = extract(args.run_dir, last=args.last, legacy=args.legacy_unversioned)
    except ExtractionError as error:
        print(f"unilab-extract-metrics: {sanitize(str(error), 1000)}", file=sys.stderr)
        return int(ExitCode.USAGE)
    print(json_line(found) if args.json else table(found))
    return int(ExitCode.OK)


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        prog="unilab-extract-metrics",
        description="Mean of the last points of a run's timing figures, from its event files.",
    )
    made.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    made.add_argument("--last", type=int, default=20, metavar="N", help="points per mean (20)")
    made.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    made.add_argument(
        "--legacy-unversioned",
        action="store_true",
        help="read the tags of a run from before the metric schema",
    )
    return made


def table(found: Extraction) -> str:
    """Rows for people; NaN where the run has no such figure."""
    lines = [f"{found.event_dir} ({found.mode}, mean of the last {found.last})"]
    for name, value in found.rows.items():
        shown = math.nan if value is None else value
        lines.append(
            f"{name:34} {shown:14.4f}  {found.points[name]:4d}  {found.sources[name] or '-'}"
        )
    return "\n".join(lines)


def json_line(found: Extraction) -> str:
    """The same for programs; null where the run has no such figure."""
    rows = {
        name: None if value is None or not math.isfinite(value) else value
        for name, value in found.rows.items()
    }
    return json.dumps(
        {
            "run_dir": found.run_dir,
            "event_dir": found.event_dir,
            "mode": found.mode,
            "metric_schema_version": METRIC_SCHEMA_VERSION if found.mode == "schema" else None,
            "algo": found.algo,
            "last": found.last,
            "rows": rows,
            "points": dict(found.points),
            "sources": dict(found.sources),
        }
    )


if __name__ == "__main__":
    sys.exit(main())
