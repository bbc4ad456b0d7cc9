"""What every benchmark returns, and what makes two figures comparable: machine and versions."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

PACKAGES = ("unilab-rl", "numpy", "mujoco", "torch", "posix-ipc", "textual")


def machine() -> dict[str, object]:
    """Processor, cores usable by this process, load and kernel."""
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "load_1min": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str | None]:
    """Installed versions of what decides the figures; None where a package is absent."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


@dataclass(kw_only=True, slots=True)
class BenchReport:
    """One benchmark's result; ``ok`` says whether its promise holds."""

    bench: str
    settings: dict[str, object]
    rows: list[dict]
    ok: bool
    machine: dict[str, object] = field(default_factory=machine)
    versions: dict[str, str | None] = field(default_factory=versions)

    def json_line(self) -> str:
        """The machine-readable result: one object on one line."""
        return json.dumps(asdict(self), allow_nan=False)

    def write(self, path: Path, **details: object) -> None:
        """The same with what is too long for a line: every point behind the rows, say."""
        record = {**asdict(self), **details}
        path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")

    def table(self) -> str:
        """The same rows for a reader."""
        if not self.rows:
            return f"{self.bench}: no rows"
        columns = [name for name in self.rows[0] if not isinstance(self.rows[0][name], dict | list)]
        cells = [[_cell(row[name]) for name in columns] for row in self.rows]
        widths = [
            max(len(name), *(len(line[index]) for line in cells))
            for index, name in enumerate(columns)
        ]
        lines = ["  ".join(name.rjust(width) for name, width in zip(columns, widths, strict=True))]
        lines += [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in cells
        ]
        return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"
    return str(value)


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
