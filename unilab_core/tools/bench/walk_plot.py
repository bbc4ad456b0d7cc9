"""Draw the curves of ``unilab-bench walk --json``: both errors over time, one line per seed.

    python -m unilab_core.tools.bench.walk_plot OUT.png RESULT.json [RESULT.json ...]

A result file holds the command's output or its JSON object alone; results of one algorithm in
several files share a colour. Needs matplotlib (extra ``dev``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

LIMIT = 0.20
PANELS = (("error_vel_xy", "error_vel_xy, m/s"), ("error_vel_yaw", "error_vel_yaw, rad/s"))
COLOURS = {"sac": "C0", "appo": "C1", "ppo": "C2", "flashsac": "C3"}


def read_rows(paths: Sequence[Path]) -> list[dict]:
    """The rows of all results, in the order of the files.

    Raises:
        ValueError: a file does not end with the object of ``unilab-bench walk --json``.
    """
    rows: list[dict] = []
    for path in paths:
        text = path.read_text(encoding="utf-8").strip()
        last_line = text.rpartition("\n")[2]
        try:
            result = json.loads(text if text.startswith("{") else last_line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}: expected the JSON line of unilab-bench walk") from error
        if not isinstance(result, dict) or result.get("bench") != "walk":
            raise ValueError(f"{path}: expected a result of unilab-bench walk")
        rows += result["rows"]
    return rows


def draw(rows: Sequence[dict], out: Path) -> None:
    """One panel per error; a dot marks the first of two passing policies in a row."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(PANELS), figsize=(9.0, 3.4), sharex=True)
    for axis, (key, label) in zip(axes, PANELS, strict=True):
        named: set[str] = set()
        for row in rows:
            algo = row["algo"]
            times_s = [point["time_s"] for point in row["curve"]]
            values = [point[key] for point in row["curve"]]
            legend = None if algo in named else algo.upper()
            named.add(algo)
            axis.plot(times_s, values, color=COLOURS.get(algo, "C7"), label=legend, linewidth=1.2)
            for time_s, value in zip(times_s, values, strict=True):
                if time_s == row["time_to_success_s"]:
                    axis.plot(time_s, value, "o", color=COLOURS.get(algo, "C7"))
        axis.axhline(LIMIT, color="0.6", linewidth=0.8, linestyle="--")
        axis.set_xlabel("seconds since process start")
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0.0)
        axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(out, dpi=130)
    pyplot.close(figure)


def main(argv: Sequence[str]) -> None:
    """See the module docstring."""
    if len(argv) < 2:
        raise SystemExit("walk_plot: expected OUT.png RESULT.json [RESULT.json ...]")
    out, *sources = (Path(word) for word in argv)
    try:
        draw(read_rows(sources), out)
    except (OSError, ValueError) as error:
        raise SystemExit(f"walk_plot: {error}") from error


if __name__ == "__main__":
    main(sys.argv[1:])
